"""Two nodes with real agents of the cluster on played engines, and the real controller.

Engines and durable files outlive an agent that is killed. A job steps on while its container runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlsched.cluster.agent.agent import AgentOptions, ClusterAgent
from dlsched.cluster.agent.contact import Contact
from dlsched.cluster.agent.ports import Lost, OrderRefused
from dlsched.cluster.agent.reporting import NodeFacts
from dlsched.cluster.controller import ClusterController, ClusterPorts
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.ledger import ClusterLedger
from dlsched.cluster.core.model import ClusterDecision, ClusterMemory, ClusterSnapshot, Move
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.records import Order, Phase, Record
from dlsched.cluster.core.reports import NodeReport
from dlsched.cluster.store import Member, MemoryStore
from dlsched.config.job import parse_spec
from dlsched.control.ledger.desired import Desired
from dlsched.estimate.learning import TOTAL_STEPS
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import NotNow
from dlsched.model.facts import ContainerFact, ContainerState, Sample
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, JobSpec
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot, Usage

JOB = "resnet"
TEXT = f"""name: {JOB}
image: training
volumes: [{JOB}:/ckpt]
checkpoint: {{signal: SIGUSR1, timeout: 30s, path: /ckpt}}
target: {{metric: accuracy, deliver: 0.8, finish: 0.9}}
"""
SHARED = TEXT.replace("path: /ckpt", "path: /ckpt, shared: true")
"""The same job with its checkpoint in storage that every node has."""
FILE = "/ckpt/last"
FAILOVER = f"{SHARED}failover: restart\n"
STEPS_PER_S = 1
TOTAL = 2000
MOVABLE_S = 70
"""A job moves once it has done 3 % of its work."""


class Killed(BaseException):
    """The agent is killed here."""


@dataclass
class Container:
    source: str
    step: int
    running: bool = True
    aside: bool = False
    reports: int = 0

    def samples(self, now_s: float) -> tuple[Sample, ...]:
        """An evaluation a second since it was started."""
        metrics = (("accuracy", 0.5), (TOTAL_STEPS, float(TOTAL)))
        count = min(self.reports, 9)
        return tuple(
            Sample(now_s - ago, self.step - ago * STEPS_PER_S, metrics)
            for ago in reversed(range(count))
        )


@dataclass
class PlayedEngine:
    """The containers of one node."""

    containers: dict[str, Container] = field(default_factory=dict)
    started_from: list[int] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    total_steps: int = TOTAL
    saves: bool = True
    breaks: bool = False
    """Whether new containers fail immediately."""
    reports: bool = True
    """Whether jobs report their steps."""
    removes: bool = True
    """Whether containers end when they are to be removed; else they are still in their grace."""
    exits: dict[str, int] = field(default_factory=dict)
    storage: dict[str, int] = field(default_factory=dict)
    """What this node shows of shared storage: the step by file."""
    ended_with_it: set[str] = field(default_factory=set)
    """Jobs whose containers ended as the engine was killed."""

    def fall(self) -> None:
        """It is killed, and started again."""
        for job, one in self.containers.items():
            if one.running:
                one.running = False
                self.ended_with_it.add(job)

    def start(self, job: str, source: str, step: int) -> None:
        self.started_from.append(step)
        self.containers[job] = Container(source, step)

    def steps(self) -> None:
        for job, one in list(self.containers.items()):
            if one.running:
                one.step += STEPS_PER_S
                one.reports += int(self.reports)
                if one.step >= self.total_steps or self.breaks:
                    del self.containers[job]
                    self.exits[job] = 1 if self.breaks else 0


class PlayedNode:
    """The port NodeJobs of one agent; a new agent has a new one."""

    def __init__(self, engine: PlayedEngine) -> None:
        self._engine = engine
        self._leaving: dict[str, Leaving] = {}
        self._archives: dict[str, Path] = {}
        self._shared: set[str] = set()
        self.brought: dict[str, Path] = {}
        self.expected: dict[str, tuple[int, str, int]] = {}

    def keep_away(self, jobs: Mapping[str, Path], lost: Lost) -> None:
        for job, one in self._engine.containers.items():
            archive = jobs.get(job) or lost(job, one.source)
            if archive is not None and one.aside:
                self._leaving[job] = Leaving(LeavingPhase.AWAY)
                self._archives[job] = archive

    def is_aside(self, job: str) -> bool:
        one = self._engine.containers.get(job)
        return one is not None and one.aside

    def found(self) -> None:
        """What the first cycle does with containers that are set aside."""
        for job, one in self._engine.containers.items():
            if one.aside and job not in self._leaving:
                self._start_again(one)

    def _start_again(self, one: Container) -> None:
        one.running, one.aside, one.reports = True, False, 0
        self._engine.started_from.append(one.step)

    def hides(self, job: str) -> bool:
        """Whether its container does not stand for it."""
        leaving = self._leaving.get(job)
        return leaving is not None and leaving.phase is LeavingPhase.AWAY

    def leave(self, job: str, checkpoint: Checkpoint, archive: Path, most_bytes: int) -> None:
        assert checkpoint.path == "/ckpt" and most_bytes > 0
        if job not in self._leaving:
            self._leaving[job] = Leaving(LeavingPhase.SAVING)
            self._archives[job] = archive
            self._shared |= {job} if checkpoint.shared else set()

    def leaving(self, job: str) -> Leaving | None:
        return self._leaving.get(job)

    def give_back(self, job: str) -> None:
        if self._leaving.pop(job, None) is None:
            return
        self._archives.pop(job).unlink(missing_ok=True)
        one = self._engine.containers.get(job)
        if one is not None and one.aside:
            self._start_again(one)

    def clear(self, job: str) -> None:
        self.brought.pop(job, None)
        self.expected.pop(job, None)
        if self._leaving.pop(job, None) is not None:
            self._archives.pop(job).unlink(missing_ok=True)
            one = self._engine.containers.get(job)
            if one is not None and one.aside:
                del self._engine.containers[job]

    def bring(self, job: str, epoch: int, archive: Path) -> None:
        assert epoch > 1
        self.brought[job] = archive

    def expect(self, job: str, epoch: int, file: str, size_bytes: int) -> None:
        assert epoch > 1
        if self.expected.get(job, (0, "", 0))[0] < epoch:
            self.expected[job] = (epoch, file, size_bytes)

    def ended_with_engine(self, job: str) -> bool:
        return job in self._engine.ended_with_it

    def start_again(self, job: str) -> None:
        self._engine.ended_with_it.discard(job)
        self._start_again(self._engine.containers[job])

    def cycle(self, desired: Desired) -> None:
        """One cycle of the node's own controller and runtime."""
        for job, leaving in list(self._leaving.items()):
            self._leave_on(job, leaving)
        there = self._engine.containers
        for job, one in list(there.items()):
            if (
                self._engine.removes
                and job not in desired.specs
                and not one.aside
                and desired.spares(fact(job, one)) is None
            ):
                del there[job]
        for job in self._engine.exits.keys() - desired.specs.keys():
            del self._engine.exits[job]
        for job in desired.specs:
            if job not in there and job not in self._engine.exits:
                self._start(job, desired.sources[job], desired.specs[job])

    def _start(self, job: str, source: str, spec: JobSpec) -> None:
        storage, archive = self._engine.storage, self.brought.get(job)
        _, file, size_bytes = self.expected.get(job, (0, "", 0))
        if file and _size(storage.get(file, 0)) != size_bytes:
            self._engine.exits[job] = 1  # its start fails for good
            return
        assert spec.checkpoint is not None
        step = storage.get(FILE, 0) if spec.checkpoint.shared else 0
        self._engine.start(job, source, step if archive is None else int(archive.read_text()))

    def _leave_on(self, job: str, leaving: Leaving) -> None:
        one = self._engine.containers.get(job)
        if leaving.phase is not LeavingPhase.SAVING:
            return
        if one is None:
            self._leaving[job] = Leaving(LeavingPhase.ENDED)
        elif not self._engine.saves:
            self._leaving[job] = Leaving(LeavingPhase.REFUSED, why="it saved nothing")
        elif not one.aside:
            self._engine.acknowledged[job] = one.step
            if job in self._shared:
                self._engine.storage[FILE] = one.step
            one.running, one.aside = False, True
        elif job in self._shared:
            self._leaving[job] = Leaving(LeavingPhase.AWAY, one.step, "", _size(one.step), FILE)
        else:
            self._archives[job].write_text(str(one.step))
            data = self._archives[job].read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            self._leaving[job] = Leaving(LeavingPhase.AWAY, one.step, digest, len(data))


def _size(step: int) -> int:
    """Of the file with that step in shared storage."""
    return len(str(step)) if step else 0


def fact(job: str, one: Container) -> ContainerFact:
    state = ContainerState.RUNNING
    return ContainerFact(job, f"{job}-id", state, "image", "digest", source=one.source)


class NodeUnderTest:
    """One node: engine and files stay, the agent comes and goes."""

    def __init__(self, world: World, name: str, folder: Path) -> None:
        self.world, self.name, self.folder = world, name, folder
        self.engine = PlayedEngine()
        self.own = Desired()
        self.alive = False
        self.boots = 0
        self.begin()

    def begin(self) -> None:
        """Start the agent again from its files."""
        self.node = PlayedNode(self.engine)
        self.fetches = Fetches(self)
        self.agent = ClusterAgent(
            AgentOptions(self.folder, 1 << 30),
            self,
            self.node,
            self.fetches,
            self.world,
            _digest_of,
            NodeFacts(lambda: "fair"),
            Contact(self.folder / "cluster/contact.json", f"{self.boots}", self.world.now_s),
        )
        self.node.found()
        self.alive = True

    def scan(self, now_s: float) -> Desired:
        """The node's own folder."""
        return self.own

    def host_fails(self) -> None:
        """Its containers end with it, and its next agent is one of another start of the host."""
        self.alive = False
        self.boots += 1
        for job, one in list(self.engine.containers.items()):
            if one.running:
                del self.engine.containers[job]
                self.engine.exits[job] = 137

    def cycle(self) -> None:
        if not self.alive:
            self.engine.steps()
            return
        self.node.cycle(self.agent.scan(self.world.now))
        self.engine.steps()
        self.agent.step(self._report())

    def _report(self) -> CycleReport:
        spec = self.world.spec
        views = [
            JobView(
                spec,
                JobState.FAILED
                if job in self.engine.ended_with_it
                else JobState.RUNNING
                if one.running
                else JobState.MOVING,
                usage=Usage(cpu_cores=1.0, window_cores=1.0),
                started_at_s=0.0,
                attained_core_s=self.world.now,
                progress=Progress(samples=one.samples(self.world.now)),
            )
            for job, one in self.engine.containers.items()
            if not self.node.hides(job)
        ]
        views += [
            JobView(spec, JobState.FAILED if code else JobState.FINISHED, reason="it ended")
            for code in self.engine.exits.values()
        ]
        return CycleReport(
            Snapshot(0, self.world.now, NodeView(8.0, 8.0, 1 << 34), tuple(views)), "fair"
        )


class Fetches:
    """The port Checkpoints of one agent."""

    def __init__(self, node: NodeUnderTest) -> None:
        self._node = node
        self._results: dict[tuple[str, int], str] = {}
        self.ended: list[str] = []
        self.slow = False
        """Whether nothing that is fetched is ever whole."""
        self.came: int | None = None

    def begin(self, source: str, job: str, epoch: int, to: Path, most_bytes: int) -> None:
        if (job, epoch) in self._results:
            return
        world = self._node.world
        path = None
        if world.reaches(source):
            path = world.nodes[source].agent.checkpoint(job, epoch, self._node.name)
        self._results[job, epoch] = "" if path else f"{source} does not give it"
        if path is not None:
            assert path.stat().st_size <= most_bytes
            to.write_bytes(path.read_bytes())

    def end(self, job: str) -> None:
        self.ended.append(job)
        for key in [key for key in self._results if key[0] == job]:
            del self._results[key]

    def came_bytes(self, job: str, epoch: int) -> int | None:
        return self.came

    def fetched(self, job: str, epoch: int) -> str | None:
        return None if self.slow else self._results.get((job, epoch))


class Moves(SpreadPolicy):
    """Spread, and the moves that a test asks for."""

    wanted: tuple[Move, ...] = ()

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        decision = super().decide(snapshot, memory)
        there = {job.name: job.node for job in snapshot.jobs}
        moves = [one for one in self.wanted if there.get(one.job) not in (None, one.target)]
        return replace(decision, moves=tuple(moves))


class World:
    """The cluster: store, controller, two nodes, and a network that a test breaks."""

    def __init__(self, folder: Path, text: str = TEXT) -> None:
        self.now = 0.0
        self.spec = replace(parse_spec(text, "x"), owner=0)
        self.store = MemoryStore([Member("a"), Member("b")], leader="me")
        self.cut: set[str] = set()
        self.loses: set[int] = set()
        self.sent: list[Order] = []
        self.policy = Moves(SpreadParameters())
        self.desired = {JOB: DesiredJob(self.spec, text=text)}
        self.nodes: dict[str, NodeUnderTest] = {}
        for name in ("a", "b"):
            self.nodes[name] = NodeUnderTest(self, name, folder / name)
            self.nodes[name].engine.storage = self.nodes["a"].engine.storage
        self.begin()

    def begin(self) -> None:
        """A new controller."""
        ports = ClusterPorts(self.store, self, self, self)
        decider = ClusterDecider("test", self.policy)
        self.controller = ClusterController("me", ports, ClusterLedger(), decider)

    def reaches(self, node: str) -> bool:
        return node not in self.cut and self.nodes[node].alive

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        if not self.reaches(node):
            return None
        try:
            found = self.nodes[node].agent.report(placed, frozenset(self.nodes))
        except NotNow:
            return None
        return replace(found, node=node)

    def send(self, order: Order) -> None:
        self.sent.append(order)
        if len(self.sent) not in self.loses:
            self.deliver(order)

    def deliver(self, order: Order) -> str:
        """Hand it to the agent; returns why it is refused."""
        if not self.reaches(order.node):
            return "silent"
        try:
            self.nodes[order.node].agent.follow(order)
        except OrderRefused as error:
            return str(error)
        return ""

    def scan(self, now_s: float) -> Mapping[str, DesiredJob]:
        return self.desired

    def unread(self) -> tuple[str, ...]:
        """Jobs whose submission cannot be read."""
        return ()

    def now_s(self) -> float:
        return self.now

    def wall_time(self) -> str:
        return ""

    def sleep_until(self, until_s: float) -> bool:
        return False

    def wake(self) -> None:
        pass

    def cpu_s(self) -> float:
        return 0.0

    @property
    def record(self) -> Record:
        return self.store.records()[JOB].record

    def second(self) -> None:
        """One cycle of each node, one round of the controller."""
        self.now += 1.0
        for node in self.nodes.values():
            try:
                node.cycle()
            except Killed:
                node.alive = False
        self.controller.round()
        self.check()

    def until(self, condition: Callable[[], bool], within_s: int = 60) -> None:
        """Seconds until it is true."""
        for _ in range(within_s):
            if condition():
                return
            self.second()
        raise AssertionError(f"not within {within_s} s: {self.record}")

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def move(self, target: str) -> None:
        self.policy.wanted = (Move(JOB, target),)

    def check(self) -> None:
        """I1 and I2: one container runs at most, and it goes on from what was acknowledged."""
        running = [name for name, one in self.nodes.items() if self.runs_on(name)]
        assert len(running) <= 1, running
        acknowledged = max(one.engine.acknowledged.get(JOB, 0) for one in self.nodes.values())
        for name in running:
            assert self.nodes[name].engine.containers[JOB].step >= acknowledged

    def runs_on(self, name: str) -> bool:
        one = self.nodes[name].engine.containers.get(JOB)
        return one is not None and one.running


def _digest_of(path: Path) -> Future[str]:
    done: Future[str] = Future()
    done.set_result(hashlib.sha256(path.read_bytes()).hexdigest())
    return done


def phase(world: World, node: str) -> Phase | None:
    held = {one.job: one for one in world.nodes[node].agent.report({}, frozenset()).holdings}
    return held[JOB].phase if JOB in held else None


def arriving(world: World) -> NodeUnderTest:
    """The node that a checkpoint comes to, but never whole."""
    target = world.nodes["b"]
    target.fetches.ended.clear()
    target.fetches.slow = True
    world.seconds(MOVABLE_S)
    world.move("b")
    world.until(lambda: bool(list(target.folder.glob("cluster/incoming/*"))))
    target.fetches.ended.clear()
    return target

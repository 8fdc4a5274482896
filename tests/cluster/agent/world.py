"""Two nodes with real agents of the cluster on played engines, and the real controller.

Engines and durable files outlive an agent that is killed. A job steps on while its container runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from dlsched.cluster.agent.agent import ClusterAgent
from dlsched.cluster.agent.assignments import Assignment
from dlsched.cluster.agent.contact import Contact
from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.controller import ClusterController
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.records import Order, Phase, Record, Saved
from dlsched.cluster.core.reports import NodeReport
from dlsched.cluster.core.snapshot import ClusterDecision, ClusterMemory, ClusterSnapshot, Move
from dlsched.cluster.store import Member, MemoryStore
from dlsched.config.job import parse_spec
from dlsched.control.ledger.desired import Desired
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import NotNow
from dlsched.model.facts import Usage
from dlsched.model.spec import ContainerSpec
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot
from tests.cluster.agent.played import PlayedEngine, PlayedNode

JOB = "resnet"
TEXT = f"""name: {JOB}
image: training
volumes: [{JOB}:/ckpt]
checkpoint: {{signal: SIGUSR1, timeout: 30s, path: /ckpt}}
target: {{metric: accuracy, deliver: 0.8, finish: 0.9}}
"""
SHARED = TEXT.replace("path: /ckpt", "path: /ckpt, shared: true")
"""The same job with its checkpoint in storage that every node has."""
FAILOVER = f"{SHARED}failover: restart\n"
MOVABLE_S = 70
"""A job moves once it has done 3 % of its work."""


class Killed(BaseException):
    """The agent is killed here."""


class NodeUnderTest:
    """One node: engine and files stay, the agent comes and goes."""

    def __init__(self, world: World, name: str, folder: Path) -> None:
        self.world, self.name, self.folder = world, name, folder
        self.engine = PlayedEngine()
        self.own = Desired()
        self.alive = False
        self.boots = 0
        self.images = PlayedImages()
        self.begin()

    def begin(self) -> None:
        """Start the agent again from its files."""
        self.node = PlayedNode(self.engine)
        self.fetches = Fetches(self)
        self.agent = ClusterAgent(
            self.folder,
            1 << 30,
            self,
            self.node,
            self.images,
            self.fetches,  # type: ignore[arg-type]
            self.world,
            lambda: "fair",
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
                container_id=f"{job}-id",
                started_at_s=0.0,
                attained_core_s=self.world.now,
                progress=Progress(samples=one.samples(self.world.now)),
            )
            for job, one in self.engine.containers.items()
            if not self.node.hides(job)
        ]
        views += [
            JobView(
                spec,
                JobState.FINISHED if code == 0 else JobState.FAILED,
                reason=self.engine.refuses or "it ended",
                container_id=None if code is None else f"{job}-id",
            )
            for job, code in self.engine.exits.items()
        ]
        return CycleReport(
            Snapshot(0, self.world.now, NodeView(8.0, 8.0, 1 << 34), tuple(views)), "fair"
        )


class PlayedImages:
    """The port NodeImages of one node: every image is there, unless `pull` says otherwise."""

    def __init__(self) -> None:
        self.pull: str | None = ""
        """What comes of a pull; None: it is still under way."""

    def names(self) -> frozenset[str]:
        return frozenset()

    def fetch(self, container: ContainerSpec) -> str | None:
        assert container.image
        return self.pull

    def progress(self, container: ContainerSpec) -> str:
        return "40 % of 2 GiB"


class Fetches:
    """In place of the HttpsCheckpoints of one agent."""

    def __init__(self, node: NodeUnderTest) -> None:
        self._node = node
        self._results: dict[tuple[str, int], str] = {}
        self.ended: list[str] = []
        self.slow = False
        """Whether nothing that is fetched is ever whole."""
        self.came: int | None = None
        self.unknown: set[str] = set()
        """Nodes without an address."""

    def begin(self, source: str, job: str, epoch: int, to: Path, saved: Saved) -> bool:
        if (job, epoch) in self._results:
            return True
        if source in self.unknown:
            return False
        world = self._node.world
        path = None
        if world.reaches(source):
            path = world.nodes[source].agent.checkpoint(job, epoch, self._node.name)
        content = path.read_bytes() if path else b""
        whole = hashlib.sha256(content).hexdigest() == saved.sha256
        self._results[job, epoch] = "" if whole else f"{source} does not give it"
        if whole:
            to.write_bytes(content)
        return True

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
        self.change(text)
        self.store = MemoryStore([Member("a"), Member("b")], leader="me")
        self.cut: set[str] = set()
        self.mute: set[str] = set()
        """Nodes that get requests, and whose answers do not come."""
        self.loses: set[int] = set()
        self.sent: list[Order] = []
        self.policy = Moves(SpreadParameters())
        self.nodes: dict[str, NodeUnderTest] = {}
        for name in ("a", "b"):
            self.nodes[name] = NodeUnderTest(self, name, folder / name)
            self.nodes[name].engine.storage = self.nodes["a"].engine.storage
        self.begin()

    def change(self, text: str) -> str:
        """That is the job's file from now on; its digest."""
        self.spec = replace(parse_spec(text, "x"), owner=0)
        self.desired = {JOB: DesiredJob(self.spec, text=text)}
        return self.spec.digest

    def begin(self) -> None:
        """A new controller."""
        decider = ClusterDecider("test", self.policy)
        self.controller = ClusterController("me", self.store, self, self, decider, self.now_s)
        self.heard_s: dict[str, float] = {}

    def reaches(self, node: str) -> bool:
        return node not in self.cut and self.nodes[node].alive

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        if not self.reaches(node):
            return None
        agent, nodes = self.nodes[node].agent, frozenset(self.nodes)
        try:
            report = agent.report(placed, nodes, self.heard_s.get(node))
        except NotNow:
            return None
        if node in self.mute:
            return None
        self.heard_s[node] = self.now
        return replace(report, node=node)

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

    def sleep_until(self, until_s: float) -> bool:
        return False

    def wake(self) -> None:
        pass

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

    def moves(self, count: int = 0, until: Callable[[], bool] = lambda: True) -> None:
        """The job runs on a until it may move, and then moves to b for so long."""
        self.seconds(MOVABLE_S)
        self.move("b")
        self.seconds(count)
        self.until(until)

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


def phase(world: World, node: str) -> Phase | None:
    held = {one.job: one for one in world.nodes[node].agent.report({}, frozenset()).holdings}
    return held[JOB].phase if JOB in held else None


def kill_at(write: int, *nodes: NodeUnderTest, after: bool) -> None:
    """Kill a present agent of these nodes at one of their next writes, before or after it."""
    left = write

    def killing(secure: Callable[[Assignment], None]) -> Callable[[Assignment], None]:
        def killed(own: Assignment) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not after:
                raise Killed
            secure(own)
            if left == 0:
                raise Killed

        return killed

    for node in nodes:
        files = node.agent._held.files
        files.secure = killing(files.secure)  # type: ignore[method-assign]


def arriving(world: World) -> NodeUnderTest:
    """The node that a checkpoint comes to, but never whole."""
    target = world.nodes["b"]
    target.fetches.ended.clear()
    target.fetches.slow = True
    world.moves(until=lambda: bool(list(target.folder.glob("cluster/incoming/*"))))
    target.fetches.ended.clear()
    return target

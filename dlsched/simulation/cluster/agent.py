"""One node of a simulated cluster: its world, the daemon's own controller that divides it, and its
agent, which follows the cluster's orders and reports what came of them.

The agent's holdings are its durable files, so they outlive its death. What it fetches comes from
another agent's set-aside container after the time that the network takes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from dlsched.cluster.core.following import OCCUPIES, RESERVED_S, RUNNING, next_phase
from dlsched.cluster.core.leases import LEASE_S, is_leased
from dlsched.cluster.core.records import Holding, Order, Phase, Saved, Verb
from dlsched.cluster.core.reports import JobReport, NodeReport, job_report
from dlsched.cluster.core.snapshot import Sharing
from dlsched.control.decider import NamedPolicy
from dlsched.control.ledger.desired import Desired
from dlsched.control.ports import Ports
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import JobSpec
from dlsched.model.state import JobState, JobView
from dlsched.policies.registry import load as load_policy
from dlsched.simulation.clock import VirtualClock
from dlsched.simulation.node import SimulatedRuntime
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import SimulatedJob, Trace, TraceNode, TrainingLoad
from dlsched.simulation.node.world import Computation
from dlsched.simulation.run import LEAST_GAP_S, EndedInMemory, controller_of

_IDLE_S = 10.0
"""Between the cycles of a node without jobs, which only measure foreign load."""


class SimulatedNode:
    """Runs the cycles of one node. It has the jobs that it is given, until they are taken away."""

    def __init__(self, trace: Trace, own: TraceNode, policy: str, seed: int) -> None:
        self.name = own.name
        self.own = own
        self.jobs = {job.name: _at_speed(job, own.speed) for job in trace.jobs}
        self.images = frozenset(job.spec.container.image for job in trace.jobs)
        """Nothing is pulled in a simulation."""
        self.runtime = SimulatedRuntime(
            replace(trace, node=own.node, host=own.host, jobs=tuple(self.jobs.values())), seed
        )
        self.sharing = Sharing.of(policy)
        self.last: CycleReport | None = None
        self._trace = trace
        self._policy = policy
        self._clock = VirtualClock()
        self._assigned = _Assigned()
        self._records = EndedInMemory()
        self._due_s = math.inf
        self.restart()

    def restart(self) -> None:
        """Start its agent again: what only its memory held is lost."""
        ports = Ports(self.runtime, self._clock, self._assigned, self._records)
        policy = NamedPolicy(self._policy, load_policy(self._policy))
        self._controller = controller_of(self._trace, ports, policy)
        self._due_s = self._clock.now_s()

    def run_until(self, until_s: float, *, agent_runs: bool = True) -> None:
        """Let its world go on to that time, with a cycle whenever one is due."""
        clock, runtime, cycle_s = self._clock, self.runtime, self._trace.cycle_s
        while True:
            now_s = clock.now_s()
            if agent_runs and self._due_s <= now_s:
                self.last = self._controller.run_once()
                busy = self._assigned.specs or runtime.present()
                self._due_s = now_s + (cycle_s if busy else max(cycle_s, _IDLE_S))
            if now_s >= until_s:
                return
            due_s = min(self._due_s, until_s) if agent_runs else until_s
            woken_s = runtime.pass_until(due_s)
            clock.sleep_until(woken_s)
            if woken_s < due_s:
                self._due_s = min(self._due_s, max(woken_s, now_s + LEAST_GAP_S))

    def assign(self, spec: JobSpec) -> None:
        self._assigned.set({**self._assigned.specs, spec.name: spec})
        self._due_s = self._clock.now_s()

    def withdraw(self, job: str) -> None:
        """Take the job away: its container is removed in the next cycle."""
        specs = dict(self._assigned.specs)
        specs.pop(job, None)
        self._assigned.set(specs)
        self._due_s = self._clock.now_s()

    def view(self, job: str) -> JobView | None:
        """The job as its controller last observed it."""
        jobs = self.last.snapshot.jobs if self.last else ()
        return next((one for one in jobs if one.name == job), None)

    @property
    def assigned(self) -> frozenset[str]:
        return frozenset(self._assigned.specs)

    @property
    def loads(self) -> dict[str, Computation]:
        return self.runtime.loads


class _Assigned:
    """The jobs that the cluster has given to this node."""

    def __init__(self) -> None:
        self.specs: dict[str, JobSpec] = {}
        self._desired = Desired()

    def set(self, specs: dict[str, JobSpec]) -> None:
        self.specs = specs
        self._desired = Desired(specs)

    def scan(self, _now_s: float) -> Desired:
        return self._desired


def _at_speed(job: SimulatedJob, speed: float) -> SimulatedJob:
    """The job on a node that does so much work in a core-second."""
    return replace(
        job,
        load=replace(job.load, work_core_s=job.load.work_core_s / speed),
        start_up_work_core_s=job.start_up_work_core_s / speed,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint with the computation that goes on from it."""

    saved: Saved
    training: Training


@dataclass(slots=True)
class HeldJob:
    """One job's durable file."""

    epoch: int
    phase: Phase
    since_s: float
    due_s: float = math.inf
    """When the present step of a move ends."""
    source: str | None = None
    saved: Saved | None = None
    kept: Kept | None = None
    confirmed: bool = True
    began_step: int = 0
    failed: bool = False
    why: str = ""


ACK_S = 1.0
"""From the end of the save until the agent has read its acknowledgement."""

_POLLED_S = 2.0
"""A move waits for about two rounds: for its commit, and for the order to leave."""


def report_of(
    node: SimulatedNode, held: Mapping[str, HeldJob], network_bytes_per_s: float, now_s: float
) -> NodeReport:
    last = node.last
    jobs = {
        job: report
        for job, own in sorted(held.items())
        if own.phase in RUNNING
        and (report := _job(node, job, own, network_bytes_per_s, now_s)) is not None
    }
    used_bytes = sum(
        node.jobs[job].spec.container.memory_bytes or 0
        for job, own in held.items()
        if own.phase in OCCUPIES
    )
    return NodeReport(
        name=node.name,
        capacity_cores=node.own.node.cores,
        foreign_cores=(last.snapshot.node.foreign_cores or 0.0) if last else 0.0,
        memory_free_bytes=node.own.node.memory_bytes - used_bytes,
        images=node.images,
        sharing=node.sharing,
        holdings=tuple(
            _holding(job, own, jobs.get(job), _came_bytes(own, network_bytes_per_s, now_s))
            for job, own in sorted(held.items())
        ),
        jobs=tuple(jobs.values()),
    )


def _holding(job: str, own: HeldJob, report: JobReport | None, came_bytes: int | None) -> Holding:
    exit_code = (1 if own.failed else 0) if own.phase is Phase.ENDED else None
    saved = own.kept.saved if own.kept else own.saved
    step = report.step if report else None
    return Holding(job, own.epoch, own.phase, step, saved, exit_code, own.why, came_bytes)


def _came_bytes(own: HeldJob, network_bytes_per_s: float, now_s: float) -> int | None:
    if own.phase is not Phase.ARRIVING or own.saved is None:
        return None
    return min(int((now_s - own.since_s) * network_bytes_per_s), own.saved.size_bytes)


def _job(
    node: SimulatedNode, job: str, own: HeldJob, network_bytes_per_s: float, now_s: float
) -> JobReport | None:
    view, last = node.view(job), node.last
    if view is None or last is None or view.state is not JobState.RUNNING:
        return None
    one = node.jobs[job]
    movable = isinstance(one.load, TrainingLoad)
    # While it saves it goes on, and repeats those steps.
    carry_s = one.checkpoint.size_bytes / network_bytes_per_s
    start_s = one.start_up_s + one.start_up_work_core_s
    return replace(
        job_report(view, last.snapshot.now_s, now_s, own.began_step),
        unmovable=None if movable else "the job saves no checkpoints",
        pause_s=one.checkpoint.save_s + ACK_S + carry_s + start_s + _POLLED_S,
    )


Fetch = Callable[[str, str, int], Kept | None]
"""Node, job, epoch: what that node keeps of the job; None: it does not answer, or has no such."""


@dataclass(slots=True)
class SimulatedAgent:
    node: SimulatedNode
    fetch: Fetch
    network_bytes_per_s: float
    storage: dict[str, Kept] = field(default_factory=dict)
    """Checkpoints in storage that every node has, by job."""
    refuses: frozenset[str] = frozenset()
    """Jobs that never acknowledge a checkpoint."""
    held: dict[str, HeldJob] = field(default_factory=dict)
    _began_s: float = 0.0
    _contact_s: float = 0.0
    """It outlives the agent, but not the host's start."""

    # ------------------------------------------------------------------ port

    def follow(self, order: Order, now_s: float) -> None:
        """Follow an order, once."""
        own = self.held.get(order.job)
        if next_phase(None if own is None else (own.epoch, own.phase), order) is not None:
            if order.verb in (Verb.ARRIVE, Verb.GIVE_BACK):
                self._contact_s = now_s
            _FOLLOW[order.verb](self, order, own, now_s)

    def report(
        self, placed: Mapping[str, int], now_s: float, heard_s: float | None = None
    ) -> NodeReport:
        """Its present report. `placed` confirms jobs that arrived, by their epoch; `heard_s`: when
        the last answer came to the controller."""
        if heard_s is not None and heard_s >= self._began_s:
            self._contact_s = max(self._contact_s, heard_s)
        for job, epoch in placed.items():
            own = self.held.get(job)
            if own is not None and own.epoch == epoch:
                own.confirmed = True
        return report_of(self.node, self.held, self.network_bytes_per_s, now_s)

    # ------------------------------------------------------------------ its own steps

    def step(self, now_s: float) -> None:
        """Go on with what is under way, by the time and by the node's own view."""
        present = self.node.runtime.present()
        for job, own in sorted(self.held.items()):
            if own.phase is Phase.PREPARED and now_s >= own.since_s + RESERVED_S:
                del self.held[job]
            elif own.phase is Phase.ARRIVING and now_s >= own.due_s:
                self._arrive(job, own, now_s)
            elif own.phase is Phase.SAVING and now_s >= own.due_s:
                self._set_aside(job, own, now_s, present)
            elif own.phase in RUNNING:
                self._observe(job, own, now_s)

    def next_s(self) -> float:
        """When its next step is due; infinite if none is."""
        return min((own.due_s for own in self.held.values()), default=math.inf)

    def restart(self, now_s: float, *, host_started: bool) -> None:
        """Begin again from its files."""
        self._began_s = now_s
        if host_started:
            self._contact_s = -math.inf
        for job, own in self.held.items():
            own.due_s = math.inf
            if own.phase is Phase.ARRIVING:
                own.phase = Phase.PREPARED
            elif own.phase in RUNNING and self._is_over(job, own, now_s):
                self._end_lease(job, own, now_s, host_started=host_started)
            elif own.phase is Phase.SAVING:
                own.phase = Phase.RUNNING
        for job, own in self.held.items():
            if own.phase is Phase.RUNNING and job not in self.node.assigned:
                self.node.assign(self.node.jobs[job].spec)

    def keeps(self, job: str, epoch: int) -> Kept | None:
        """What it has set aside of a job."""
        own = self.held.get(job)
        return own.kept if own and own.phase is Phase.AWAY and own.epoch <= epoch else None

    # ------------------------------------------------------------------ orders

    def _prepare(self, order: Order, _own: HeldJob | None, now_s: float) -> None:
        self.held[order.job] = HeldJob(order.epoch, Phase.PREPARED, now_s)

    def _take(self, order: Order, own: HeldJob | None, now_s: float) -> None:
        if own is not None and own.phase in (Phase.RUNNING, Phase.REFUSED) and not order.source:
            own.epoch, own.phase, own.confirmed = order.epoch, Phase.RUNNING, True
            return
        size_bytes = order.saved.size_bytes if order.saved else 0
        self.held[order.job] = HeldJob(
            order.epoch,
            Phase.ARRIVING,
            now_s,
            due_s=now_s + size_bytes / self.network_bytes_per_s,
            source=order.source,
            saved=order.saved,
            confirmed=order.source is None,
        )

    def _leave(self, order: Order, own: HeldJob | None, now_s: float) -> None:
        assert own is not None
        training = self.node.loads[order.job]
        if order.job in self.refuses or not isinstance(training, Training):
            own.phase, own.why = Phase.REFUSED, "the job acknowledged no checkpoint in time"
            return
        job = self.node.jobs[order.job]
        own.phase, own.due_s = Phase.SAVING, now_s + job.checkpoint.save_s + ACK_S
        digest = _digest(order.job, training.step)
        own.saved = Saved(training.step, digest, job.checkpoint.size_bytes)

    def _give_back(self, order: Order, own: HeldJob | None, now_s: float) -> None:
        if own is None:
            self.held[order.job] = HeldJob(order.epoch, Phase.RUNNING, now_s)
            self.node.assign(self.node.jobs[order.job].spec)
            return
        if own.phase is Phase.AWAY:
            self._start(order.job, own, own.kept or self.storage.get(order.job))
        if own.phase is not Phase.ENDED:
            own.phase = Phase.RUNNING
        own.epoch, own.since_s = order.epoch, now_s
        own.due_s, own.why, own.confirmed = math.inf, "", True

    def _clear(self, order: Order, _own: HeldJob | None, now_s: float) -> None:
        self.node.withdraw(order.job)
        self.held[order.job] = HeldJob(order.epoch, Phase.FENCED, now_s)

    # ------------------------------------------------------------------ steps

    def _arrive(self, job: str, own: HeldJob, now_s: float) -> None:
        own.due_s = math.inf
        if own.source is None:
            own.phase = Phase.RUNNING
            self._start(job, own, self.storage.get(job))
            return
        shared = self._is_shared(job)
        kept = self.storage.get(job) if shared else self.fetch(own.source, job, own.epoch)
        if kept is None or own.saved is None or kept.saved.sha256 != own.saved.sha256:
            own.phase = Phase.FAILED
            own.why = f"{own.source} does not have the checkpoint that the job saved for the move"
            return
        own.phase, own.since_s = Phase.RUNNING, now_s
        self._start(job, own, kept)

    def _start(self, job: str, own: HeldJob, kept: Kept | None) -> None:
        load = self.node.jobs[job].load
        if kept is not None:
            assert isinstance(load, TrainingLoad)
            self.node.runtime.carry(job, kept.training.carried(kept.saved.step, load))
        own.began_step, own.kept = kept.saved.step if kept else 0, None
        self.node.assign(self.node.jobs[job].spec)

    def _set_aside(self, job: str, own: HeldJob, now_s: float, present: Mapping[str, bool]) -> None:
        """End the job's container, then keep what it has saved."""
        if job in self.node.assigned:
            view = self.node.view(job)
            if view is not None and view.state is JobState.FINISHED:
                own.phase, own.due_s = Phase.RUNNING, math.inf
                return
            self.node.withdraw(job)
        if job in present:
            return
        if own.saved is not None:
            training, load = self.node.loads[job], self.node.jobs[job].load
            assert isinstance(training, Training) and isinstance(load, TrainingLoad)
            own.kept = Kept(own.saved, training.carried(own.saved.step, load))
            if self._is_shared(job):
                self.storage[job] = own.kept
        own.phase, own.since_s, own.due_s = Phase.AWAY, now_s, math.inf

    def _observe(self, job: str, own: HeldJob, now_s: float) -> None:
        view = self.node.view(job)
        if view is not None and view.state in (JobState.FINISHED, JobState.FAILED):
            own.phase, own.due_s = Phase.ENDED, math.inf
            own.why = view.reason or ""
            own.failed = view.state is JobState.FAILED
        elif own.phase is not Phase.SAVING and self._is_over(job, own, now_s):
            if own.confirmed:
                self._leave(Order(Verb.LEAVE, self.node.name, job, own.epoch), own, now_s)
            if own.due_s == math.inf:
                self._end_lease(job, own, now_s)

    def _is_over(self, job: str, own: HeldJob, now_s: float) -> bool:
        leased = is_leased(self.node.jobs[job].spec, confirmed=own.confirmed)
        return leased and now_s - self._contact_s > LEASE_S

    def _end_lease(
        self, job: str, own: HeldJob, now_s: float, *, host_started: bool = False
    ) -> None:
        """Set it aside: an arrival with what it came with, any other without a checkpoint."""
        own.saved = None if own.confirmed else own.saved
        own.phase, own.due_s = Phase.SAVING, now_s
        if host_started:  # its container has ended, and is not started again
            self.node.withdraw(job)

    def _is_shared(self, job: str) -> bool:
        checkpoint = self.node.jobs[job].spec.checkpoint
        return checkpoint is not None and checkpoint.shared


_FOLLOW: dict[Verb, Callable[[SimulatedAgent, Order, HeldJob | None, float], None]] = {
    Verb.PREPARE: SimulatedAgent._prepare,
    Verb.ARRIVE: SimulatedAgent._take,
    Verb.LEAVE: SimulatedAgent._leave,
    Verb.GIVE_BACK: SimulatedAgent._give_back,
    Verb.CLEAR: SimulatedAgent._clear,
}


def _digest(job: str, step: int) -> str:
    return hashlib.sha256(f"{job}/{step}".encode()).hexdigest()

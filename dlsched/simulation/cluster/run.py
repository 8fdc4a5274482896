"""Runs a trace on a simulated cluster, with the real controllers of cluster and nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from dlsched.cluster.controller import ClusterController
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.records import Order, Record, RecordState
from dlsched.cluster.core.snapshot import (
    ClusterDecision,
    ClusterMemory,
    ClusterPolicy,
    ClusterSnapshot,
)
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.store import ClusterStore, Member, MemoryStore, Stored
from dlsched.simulation.clock import VirtualClock
from dlsched.simulation.cluster.invariants import Invariants, moment_of
from dlsched.simulation.cluster.network import HeldState, NetworkOptions, SimulatedAgents
from dlsched.simulation.cluster.random_moves import simulated_policy
from dlsched.simulation.node.workloads import SimulatedJob, Trace, TraceNode
from dlsched.simulation.run import changes_s
from dlsched.simulation.scoring import JobResult, job_result

Wrote = Callable[[Stored, int | None], None]
"""What was committed, and the version that the writer knew."""


def watched(store: MemoryStore, wrote: Wrote, removed: Callable[[Record], None]) -> ClusterStore:
    return cast("ClusterStore", _Watched(store, wrote, removed))


class _Watched:
    def __init__(self, store: MemoryStore, wrote: Wrote, removed: Callable[[Record], None]) -> None:
        self._store, self._wrote, self._removed = store, wrote, removed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, record: Record, version: int | None) -> int:
        try:
            return self._store.put(record, version)
        finally:  # a writer may die with its record committed
            stored = self._store.records().get(record.job)
            if stored is not None and stored.record is record:
                self._wrote(stored, version)

    def remove(self, job: str, version: int) -> None:
        before = self._store.records()[job].record
        self._store.remove(job, version)
        self._removed(before)


class WithoutMoves:
    """The same policy, whose moves are not carried out."""

    Parameters: ClassVar[type[Any]] = object

    def __init__(self, policy: ClusterPolicy) -> None:
        self._policy = policy

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        return replace(self._policy.decide(snapshot, memory), moves=())


LEAST_STEP_S = 0.001
"""Between two moments that are looked at."""


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """One run: one cluster policy on all nodes, one seed."""

    cluster: str
    policy: str
    seed: int
    moves: int
    failed_moves: int
    writes: int
    jobs: tuple[JobResult, ...]
    nodes: Mapping[str, str]
    """The node on which each job ended, by job."""
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    policy: str = "none"
    """Of each node."""
    moves: bool = True
    network: NetworkOptions = field(default_factory=NetworkOptions)
    publish: Callable[[RoundReport], None] = lambda _: None


def simulate_cluster(
    trace: Trace,
    cluster: str,
    seed: int = 0,
    options: ClusterOptions | None = None,
) -> ClusterRun:
    """Run the trace to its end; the same arguments give the same result. Raises BrokenInvariant."""
    return SimulatedCluster(trace, cluster, seed, options or ClusterOptions()).run()


def with_nodes(trace: Trace, count: int) -> Trace:
    """The trace on so many nodes like its own."""
    own = TraceNode("", trace.node, host=trace.host)
    nodes = tuple(replace(own, name=f"node-{index + 1:02}") for index in range(count))
    return replace(trace, nodes=nodes, host=())


class SimulatedCluster:
    """A cluster whose parts can be looked at, and whose controller can be started again."""

    def __init__(
        self,
        trace: Trace,
        cluster: str,
        seed: int,
        options: ClusterOptions,
        store: MemoryStore | None = None,
    ) -> None:
        self.trace, self.cluster, self.seed, self.options = trace, cluster, seed, options
        self.clock = VirtualClock()
        self.agents = SimulatedAgents(trace, options.policy, seed, options.network)
        self.agents.sent, self.agents.followed = self._sent, self._followed
        self.store = store or MemoryStore((), leader="manager")
        self.inbox = _Arrivals(trace.jobs)
        self.invariants = Invariants()
        self.failed_moves = self.writes = 0
        self._alarms: dict[str, None] = {}
        self._round_s = 0.0
        self._membership()
        self.start_controller()

    def start_controller(self) -> None:
        """A controller that knows nothing yet."""
        policy = simulated_policy(self.cluster, self.seed)
        if not self.options.moves:
            policy = WithoutMoves(policy)
        self.controller = ClusterController(
            "manager",
            watched(self.store, self._wrote, self._removed),
            self.agents,
            self.inbox,
            ClusterDecider(self.cluster, policy),
            self.clock.now_s,
            publish=self.options.publish,
        )
        self._round_s = self.clock.now_s()

    def run(self) -> ClusterRun:
        trace, clock = self.trace, self.clock
        while True:
            now_s = clock.now_s()
            if now_s >= self._round_s or self.inbox.changed(now_s):
                self._membership()
                self._count(self.controller.round())
            self.agents.run_until(now_s)
            self.check()
            if now_s >= trace.duration_s or self.is_done():
                return self.result()
            until_s = min(
                trace.duration_s, self._round_s, self.agents.next_s(), self.inbox.next_s(now_s)
            )
            until_s = max(until_s, now_s + LEAST_STEP_S)
            self.agents.run_until(until_s)
            clock.sleep_until(until_s)

    def check(self) -> None:
        self.invariants.check(moment_of(self._records(), self.agents))

    def is_done(self) -> bool:
        """Whether no job is to come, and none that is there runs or waits."""
        records, now_s = self.store.records(), self.clock.now_s()
        return self.inbox.next_s(now_s) == math.inf and all(
            job in records
            and records[job].record.state is RecordState.ENDED
            and not records[job].record.wants_place(one.spec.digest)
            for job, one in self.inbox.scan(now_s).items()
        )

    def result(self) -> ClusterRun:
        records = self.store.records()
        first = next(iter(self.agents.nodes))
        on = {
            job.name: records[job.name].record.on if job.name in records else first
            for job in self.trace.jobs
        }
        return ClusterRun(
            self.cluster,
            self.options.policy,
            self.seed,
            sum(one.record.moves for one in records.values()),
            self.failed_moves,
            self.writes,
            tuple(
                job_result(
                    job, self.agents.nodes[on[job.name]].loads[job.name], self.trace.duration_s
                )
                for job in self.trace.jobs
            ),
            on,
            tuple(self._alarms),
        )

    def _count(self, report: RoundReport) -> None:
        self.writes += len(report.written)
        self.failed_moves += len(report.failed)
        self._alarms.update(dict.fromkeys(report.alarms))
        self._round_s = self.clock.now_s() + report.next_s
        self._decided(report)

    # ------------------------------------------------------------------ what the invariants know

    def _records(self) -> dict[str, Record]:
        return {job: one.record for job, one in self.store.records().items()}

    def _wrote(self, stored: Stored, version: int | None) -> None:
        now_s = self.clock.now_s()
        wanted = self.inbox.is_there(stored.record.job, now_s)
        self.invariants.committed(now_s, stored, version, wanted=wanted)

    def _removed(self, record: Record) -> None:
        self.invariants.removed(self.clock.now_s(), record)

    def _sent(self, order: Order) -> None:
        stored = self.store.records().get(order.job)
        self.invariants.sent(self.clock.now_s(), order, stored.record if stored else None)

    def _followed(self, order: Order, before: HeldState | None, after: HeldState | None) -> None:
        self.invariants.followed(self.agents.now_s, order, before, after)

    def _decided(self, report: RoundReport) -> None:
        if report.facts is None or report.snapshot is None or report.alarms:
            return  # not a whole round
        queued = {one.name for one in report.snapshot.queue}
        changed = {one.job for one in report.written}
        desired = {job: one.spec.digest for job, one in report.facts.desired.items()}
        waiting = queued | changed | report.waits.keys()
        # Another controller may have written meanwhile.
        self.invariants.decided(self.clock.now_s(), desired, waiting, report.records)

    def _membership(self) -> None:
        """What the store knows of the nodes at this moment."""
        now_s = self.clock.now_s()
        self.store.members = {
            one.name: Member(
                one.name,
                up=self.agents.is_up(one.name),
                draining=one.leaves_s is not None and now_s >= one.leaves_s,
            )
            for one in self.trace.nodes
            if now_s >= one.joins_s
        }


class _Arrivals:
    """The trace's jobs as they come and go."""

    def __init__(self, jobs: Sequence[SimulatedJob]) -> None:
        self._jobs = sorted(jobs, key=lambda job: (job.arrives_s, job.name))
        self._changes_s = changes_s(jobs)
        self._scanned_s = -math.inf

    def scan(self, now_s: float) -> Mapping[str, DesiredJob]:
        self._scanned_s = now_s
        return {
            job.name: DesiredJob(job.spec, job.arrives_s)
            for job in self._jobs
            if job.is_there(now_s)
        }

    def unread(self) -> Collection[str]:
        return ()

    def is_there(self, job: str, now_s: float) -> bool:
        """Whether a file of that name is there."""
        return any(one.name == job and one.is_there(now_s) for one in self._jobs)

    def changed(self, now_s: float) -> bool:
        """Whether a job came or went since the last scan."""
        return any(self._scanned_s < at_s <= now_s for at_s in self._changes_s)

    def next_s(self, now_s: float) -> float:
        return next((at_s for at_s in self._changes_s if at_s > now_s), math.inf)

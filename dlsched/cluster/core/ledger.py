"""What the controller keeps of nodes and jobs from round to round, and the snapshot that follows.

Everything here can be lost: a new controller learns it again from reports.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dlsched.cluster.core.job_memory import DesiredJob, JobMemory, Prior
from dlsched.cluster.core.records import Holding, Record, RecordState
from dlsched.cluster.core.reports import NodeReport
from dlsched.cluster.core.snapshot import (
    ClusterJob,
    ClusterSnapshot,
    NodeState,
    NodeSummary,
    Transit,
)
from dlsched.cluster.core.transit import Held

LEAST_IMAGES = 2
"""So many images must have run on a node and elsewhere before their ratio counts: one image may do
more work in a step there than elsewhere."""
ALIKE_RATIO = 0.1
"""Nodes whose speed differs by less from the typical one count as typical."""
_LEAST, _MOST = 0.1, 10.0


class Pace(NamedTuple):
    """The pace of one job on one node."""

    image: str
    node: str
    steps_per_core_s: float


def speeds(paces: Iterable[Pace]) -> dict[str, float]:
    """By node, where enough is known: work done in a core-second, relative to the typical node."""
    by_image: dict[str, dict[str, list[float]]] = {}
    for one in paces:
        nodes = by_image.setdefault(one.image, {})
        nodes.setdefault(one.node, []).append(one.steps_per_core_s)
    ratios: dict[str, list[float]] = {}
    for nodes in by_image.values():
        if len(nodes) < 2:
            continue
        means = {node: statistics.median(values) for node, values in nodes.items()}
        typical = statistics.median(means.values())
        for node, mean in means.items():
            ratios.setdefault(node, []).append(mean / typical)
    found = {}
    for node, values in ratios.items():
        if len(values) >= LEAST_IMAGES:
            speed = min(max(statistics.median(values), _LEAST), _MOST)
            found[node] = 1.0 if abs(speed - 1.0) < ALIKE_RATIO else speed
    return found


SILENT_S = 30.0
"""A node whose last report is older counts as silent."""
_PACES_MAX = 2000
"""Paces that are remembered, the oldest job's first to go."""
_UNKNOWN = JobMemory()

Prepared = Mapping[str, tuple[str, float]]
"""Moves whose target keeps room, but that no record says yet: target and beginning, by job."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What one round has read: the store's nodes and records, and the reports that came."""

    now_s: float
    nodes: Mapping[str, NodeState]
    records: Mapping[str, Record]
    reports: Mapping[str, NodeReport]
    desired: Mapping[str, DesiredJob]
    unread: frozenset[str] = frozenset()
    """Jobs that are desired, too, but nothing else is known of them."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of nodes."""

    def is_gone(self, job: str) -> bool:
        """Whether the job is no longer desired."""
        return job not in self.desired and job not in self.unread

    def holdings(self) -> dict[str, dict[str, Holding]]:
        """What the nodes hold, by job and node."""
        found: dict[str, dict[str, Holding]] = {}
        for node, report in self.reports.items():
            for one in report.holdings:
                found.setdefault(one.job, {})[node] = one
        return found

    def holding(self, node: str, job: str) -> Holding | None:
        """What that node holds of the job."""
        report = self.reports.get(node)
        return None if report is None else report.holding(job)

    def held(self) -> dict[str, Held]:
        """What the nodes hold, by job that has a record."""
        found, answered, nothing = self.holdings(), self.reports.keys(), dict[str, Holding]()
        return {job: Held(answered, found.get(job, nothing)) for job in self.records}


class ClusterLedger:
    """Jobs by name, and the last report of each node."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobMemory] = {}
        self._reports: dict[str, tuple[float, NodeReport]] = {}
        self._paces: dict[tuple[str, str, str], Pace] = {}
        """The last of each job on each node, also of jobs that ended."""
        self._speeds: dict[str, float] = {}
        self._round = 0
        self._began_s: float | None = None

    def update(
        self, facts: ClusterFacts, moves: Prepared, waits: Collection[str] = ()
    ) -> ClusterSnapshot:
        """The snapshot of this round, without the queued jobs that still wait for something else
        than a node."""
        self._round += 1
        self._began_s = facts.now_s if self._began_s is None else self._began_s
        self._remember(facts)
        self._measure(facts)
        records, desired = facts.records, facts.desired
        alive = [
            name
            for name in sorted(desired.keys() & records.keys())
            if records[name].state is not RecordState.ENDED
        ]
        waiting = sorted(
            (one.arrived_s, name)
            for name, one in desired.items()
            if name not in waits
            and ((kept := records.get(name)) is None or kept.wants_place(one.spec.digest))
        )
        prior = Prior(self.jobs.values())
        return ClusterSnapshot(
            round=self._round,
            now_s=facts.now_s,
            nodes=tuple(self._nodes(facts)),
            jobs=tuple(self._view(facts, name, prior) for name in alive),
            queue=tuple(self._view(facts, name, prior, queued=True) for _, name in waiting),
            moving=tuple(self._transits(facts, alive, moves)),
        )

    def _view(
        self, facts: ClusterFacts, name: str, prior: Prior, *, queued: bool = False
    ) -> ClusterJob:
        """The job as policies get it. Of a queued one it counts only where it could not start."""
        desired, memory = facts.desired[name], self.jobs.get(name, _UNKNOWN)
        barred = memory.barred_at(facts.now_s, desired.spec.digest)
        if queued:
            return _UNKNOWN.view(desired, None, prior, barred)
        return memory.view(desired, facts.records[name], prior, barred)

    def waited_s(self, job: str, now_s: float) -> float:
        """How long the job's record has been as it is, and nothing of its checkpoint has come, as
        far as this controller knows."""
        memory = self.jobs.get(job)
        return now_s - memory.came_s if memory else 0.0

    def unanswered_s(self, node: str, now_s: float) -> float:
        """Time since the node's last answer, or since this controller began to lead, as it may have
        answered another one until then."""
        began_s = now_s if self._began_s is None else self._began_s
        last = self._reports.get(node)
        return now_s - (began_s if last is None else max(last[0], began_s))

    def down_s(self, down: Iterable[str], now_s: float) -> dict[str, float]:
        """Time since their last answer, of nodes that the store calls down."""
        return {name: self.unanswered_s(name, now_s) for name in down}

    def last_report(self, node: str) -> NodeReport | None:
        """None: it has not answered yet."""
        last = self._reports.get(node)
        return None if last is None else last[1]

    def begin_again(self) -> None:
        """Another controller may lead until the next update: from then on it counts how long a node
        has not answered."""
        self._began_s = None

    def rest(self, job: str, until_s: float) -> None:
        self.jobs.setdefault(job, JobMemory()).rests_until_s = until_s

    def _remember(self, facts: ClusterFacts) -> None:
        for name in self.jobs.keys() - facts.records.keys():
            del self.jobs[name]
        for name, record in facts.records.items():
            memory = self.jobs.get(name) or self.jobs.setdefault(name, JobMemory())
            if (desired := facts.desired.get(name)) is not None:
                memory.image = desired.spec.container.image
            memory.remember(record, facts.now_s)

    def _measure(self, facts: ClusterFacts) -> None:
        for node, report in facts.reports.items():
            self._reports[node] = (facts.now_s, report)
            for held in report.holdings:
                owned = self.jobs.get(held.job)
                if owned is None:
                    continue
                owned.bar(node, held, facts.now_s)
                if owned.record is not None and owned.record.on == node:
                    owned.arrive(held, facts.now_s)
            for one in report.jobs:
                memory = self.jobs.get(one.name)
                if memory is None or memory.record is None or memory.record.on != node:
                    continue
                memory.measure(one, self._speeds.get(node, 1.0))
                if one.steps_per_core_s is not None:
                    pace = Pace(memory.image, node, one.steps_per_core_s)
                    self._paces[one.name, node, memory.image] = pace
        while len(self._paces) > _PACES_MAX:
            del self._paces[next(iter(self._paces))]
        self._speeds = speeds(self._paces.values())

    def _nodes(self, facts: ClusterFacts) -> list[NodeSummary]:
        found = []
        for node, state in sorted(facts.nodes.items()):
            if node not in self._reports:
                continue
            at_s, report = self._reports[node]
            age_s = facts.now_s - at_s + report.age_s
            found.append(
                NodeSummary(
                    name=node,
                    capacity_cores=report.capacity_cores,
                    foreign_cores=report.foreign_cores,
                    memory_free_bytes=report.memory_free_bytes,
                    gpus_free=report.gpus_free,
                    images=report.images,
                    labels=facts.labels.get(node, {}),
                    state=NodeState.SILENT if age_s > SILENT_S else state,
                    sharing=report.sharing,
                    age_s=age_s,
                    speed=self._speeds.get(node, 1.0),
                )
            )
        return found

    def _transits(
        self, facts: ClusterFacts, alive: Collection[str], moves: Prepared
    ) -> list[Transit]:
        found = []
        for name in alive:
            record, memory = facts.records[name], self.jobs[name]
            began_s = memory.began_s
            source, target = record.source or record.on, record.target or record.on
            if record.state is RecordState.PLACED:
                if name not in moves:
                    continue
                target, began_s = moves[name]
            found.append(Transit(name, source, target, began_s + memory.pause_s))
        return found

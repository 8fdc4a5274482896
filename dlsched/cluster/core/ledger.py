"""What the controller keeps of nodes and jobs from round to round, and the snapshot that follows.

Everything here can be lost: a new controller learns it again from reports.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from dlsched.cluster.core.model import (
    ClusterJob,
    ClusterSnapshot,
    Evaluation,
    Left,
    NodeState,
    NodeSummary,
    Transit,
)
from dlsched.cluster.core.records import Holding, Record, RecordState
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.model.spec import JobSpec

SILENT_S = 30.0
"""A node whose last report is older counts as silent."""
_PRIOR_LOW, _PRIOR_HIGH = 0.5, 2.0
"""80 % interval of the work of a job that has not reported, as factors of the mean of jobs like
it."""
_LEAST = 0.1
"""Least work that is left of a job of which only this is known, as a factor of the same mean."""


@dataclass(frozen=True, slots=True)
class DesiredJob:
    """A job that the cluster should run."""

    spec: JobSpec
    arrived_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What one round has read: the store's nodes and records, and the reports that came."""

    now_s: float
    nodes: Mapping[str, NodeState]
    records: Mapping[str, Record]
    reports: Mapping[str, NodeReport]
    desired: Mapping[str, DesiredJob]

    def held(self, job: str) -> dict[str, Holding | None]:
        """By node that answered: what it holds of the job."""
        return {
            node: next((one for one in report.holdings if one.job == job), None)
            for node, report in self.reports.items()
        }


@dataclass(slots=True)
class _Memory:
    """One job, over its rounds."""

    image: str = ""
    record: Record | None = None
    since_s: float = 0.0
    """When this controller first read the present record."""
    began_s: float = 0.0
    """When its last move began."""
    pause_s: float = 0.0
    placed_at_s: float = 0.0
    rests_until_s: float = 0.0
    report: JobReport | None = None
    before_core_s: float = 0.0
    """CPU time on earlier nodes, as work on a node of speed 1."""
    last_evaluated_s: float = -math.inf
    evaluations: tuple[Evaluation, ...] = ()
    most_cores: float = 0.0
    work_core_s: float | None = None
    """All of its work, as far as it is known."""


@dataclass(slots=True)
class ClusterLedger:
    jobs: dict[str, _Memory] = field(default_factory=dict)
    _reports: dict[str, tuple[float, NodeReport]] = field(default_factory=dict)
    _works: dict[str, list[float]] = field(default_factory=dict)
    """All work of each job of which it is known, by image."""
    _round: int = 0

    def update(
        self, facts: ClusterFacts, moves: Mapping[str, tuple[str, float]]
    ) -> ClusterSnapshot:
        """The snapshot of this round. `moves`: target and beginning of those that are prepared."""
        self._round += 1
        now_s = facts.now_s
        for name in self.jobs.keys() - facts.records.keys():
            del self.jobs[name]
        for node, report in facts.reports.items():
            self._reports[node] = (now_s, report)
        for name, record in facts.records.items():
            self._remember(name, record, facts)
        for report in facts.reports.values():
            for one in report.jobs:
                self._measure(report.node, one)
        self._works = {}
        for memory in self.jobs.values():
            if memory.work_core_s is not None:
                self._works.setdefault(memory.image, []).append(memory.work_core_s)
        present = facts.desired.keys() & facts.records.keys()
        alive = [name for name in sorted(present) if not _ended(facts.records[name])]
        waiting = sorted(
            (one.arrived_s, name)
            for name, one in facts.desired.items()
            if name not in facts.records
        )
        return ClusterSnapshot(
            round=self._round,
            now_s=now_s,
            nodes=tuple(self._nodes(facts)),
            jobs=tuple(self._job(facts.desired[name], facts.records[name]) for name in alive),
            queue=tuple(self._job(facts.desired[name], None) for _, name in waiting),
            moving=tuple(self._transits(facts, alive, moves)),
        )

    def waited_s(self, job: str, now_s: float) -> float:
        """How long the job's record has been as it is, as far as this controller knows."""
        memory = self.jobs.get(job)
        return now_s - memory.since_s if memory else 0.0

    def unanswered_s(self, node: str, now_s: float) -> float:
        """Time since the node's last answer; infinite without one."""
        last = self._reports.get(node)
        return math.inf if last is None else now_s - last[0]

    def rest(self, job: str, until_s: float) -> None:
        self.jobs.setdefault(job, _Memory()).rests_until_s = until_s

    def _remember(self, name: str, record: Record, facts: ClusterFacts) -> None:
        memory = self.jobs.setdefault(name, _Memory())
        before = memory.record
        if record == before:
            return
        memory.record, memory.since_s = record, facts.now_s
        if before is None or record.state is RecordState.LEAVING:
            memory.began_s = facts.now_s
        if name in facts.desired:
            memory.image = facts.desired[name].spec.container.image
        if _ended(record):
            if record.exit_code == 0 and memory.report is not None:
                memory.work_core_s = memory.before_core_s + memory.report.used_core_s
        elif before is None or before.on != record.on:
            memory.placed_at_s = facts.now_s
            if memory.report is not None:
                memory.before_core_s += memory.report.used_core_s
            memory.report, memory.evaluations = None, ()

    def _measure(self, node: str, report: JobReport) -> None:
        memory = self.jobs.get(report.name)
        if memory is None or memory.record is None or memory.record.on != node:
            return
        memory.evaluations = tuple(
            one for one in report.evaluations if one.at_s > memory.last_evaluated_s
        )
        if memory.evaluations:
            memory.last_evaluated_s = memory.evaluations[-1].at_s
        memory.report, memory.pause_s = report, report.pause_s
        if report.left is not None:
            done_core_s = memory.before_core_s + report.used_core_s
            memory.work_core_s = done_core_s + report.left.mid_core_s
        memory.most_cores = max(memory.most_cores, report.granted_cores)

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
                    state=NodeState.SILENT if age_s > SILENT_S else state,
                    sharing=report.sharing,
                    age_s=age_s,
                )
            )
        return found

    def _job(self, desired: DesiredJob, record: Record | None) -> ClusterJob:
        spec = desired.spec
        memory = self.jobs.get(spec.name) or _Memory()
        report = memory.report
        most = spec.bounds.ceiling_cores
        job = ClusterJob(
            name=spec.name,
            owner="" if spec.owner is None else str(spec.owner),
            image=spec.container.image,
            arrived_s=desired.arrived_s,
            weight=spec.weight,
            floor_cores=spec.bounds.floor_cores,
            memory_bytes=spec.container.memory_bytes,
            gpus=spec.container.gpus,
            parallel_cores=max(memory.most_cores, 1.0) if most is None else most,
            left=self._prior(spec.container.image, 0.0),
            has_target=spec.target is not None,
        )
        if record is None:
            return job
        done_core_s = memory.before_core_s + (report.used_core_s if report else 0.0)
        job = replace(
            job,
            node=record.on,
            done_core_s=done_core_s,
            left=self._prior(spec.container.image, done_core_s),
            moves=record.moves,
            placed_at_s=memory.placed_at_s,
            rests_until_s=memory.rests_until_s,
            unmovable="it has not reported yet",
        )
        if report is None:
            return job
        return replace(
            job,
            left=report.left or job.left,
            granted_cores=report.granted_cores,
            evaluations=memory.evaluations,
            reports=report.reports,
            steps_per_core_s=report.steps_per_core_s,
            unmovable=report.unmovable,
            pause_s=report.pause_s,
        )

    def _prior(self, image: str, done_core_s: float) -> Left | None:
        """Remaining work by jobs of the same image; by all jobs where there is none."""
        works = self._works.get(image) or [one for own in self._works.values() for one in own]
        if not works:
            return None
        mid = statistics.fmean(works)
        low, high = _PRIOR_LOW * mid, _PRIOR_HIGH * mid
        return Left(*(max(total - done_core_s, _LEAST * mid) for total in (low, mid, high)))

    def _transits(
        self, facts: ClusterFacts, alive: Collection[str], moves: Mapping[str, tuple[str, float]]
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
            found.append(Transit(name, source, target, began_s, began_s + memory.pause_s))
        return found


def _ended(record: Record) -> bool:
    return record.state is RecordState.ENDED

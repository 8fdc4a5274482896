"""One job of the cluster over its rounds: what its records and reports have said so far."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dlsched.cluster.core.records import (
    Holding,
    Phase,
    Record,
    RecordState,
    file_version,
    is_unstarted,
)
from dlsched.cluster.core.reports import PACE_REPORTS_MIN, JobReport
from dlsched.cluster.core.snapshot import ClusterJob, Evaluation, Left
from dlsched.cluster.core.transit import fetch_s
from dlsched.model.spec import JobSpec

_PRIOR_LOW, _PRIOR_HIGH = 0.5, 2.0
"""80 % interval of the work of a job that has not reported, as factors of the mean of jobs like
it."""
_LEAST = 0.1
"""Least work that is left of a job of which only this is known, as a factor of the same mean."""


BARRED_S = 600.0
"""How long a job is not sent to a node again that could not start it."""
_MOVED_SPREAD = 0.2
"""Half-width of the interval of a job that has not reported since its last move."""
_NOWHERE: Mapping[str, str] = {}
_NONE = JobReport("", unmovable="the job has not reported yet")


@dataclass(frozen=True, slots=True)
class DesiredJob:
    """A job that the cluster should run."""

    spec: JobSpec
    arrived_s: float = 0.0
    text: str = ""
    """The job file, for the nodes' agents; empty in simulations."""

    @property
    def version(self) -> str:
        """Of the file."""
        return file_version(self.text)


class Barred(NamedTuple):
    """A node that could not start a job, by that specification."""

    until_s: float
    digest: str
    why: str


@dataclass(slots=True)
class JobMemory:
    """All of it can be lost: a new controller learns it again. Work is that on a node of speed
    1."""

    image: str = ""
    record: Record | None = None
    since_s: float = 0.0
    """When this controller first read the present record."""
    came_bytes: int = 0
    """Of the checkpoint that it moves with."""
    came_s: float = 0.0
    """When the last of them had come; until then, `since_s`."""
    began_s: float = 0.0
    """When its last move began."""
    pause_s: float = 0.0
    placed_at_s: float = 0.0
    rests_until_s: float = 0.0
    report: JobReport | None = None
    left: Left | None = None
    """By reports from its present node; None: by none yet."""
    speed: float = 1.0
    """Of its present node, when it last reported."""
    before_core_s: float = 0.0
    """CPU time on earlier nodes."""
    last_evaluated_s: float = -math.inf
    evaluations: tuple[Evaluation, ...] = ()
    """Those since the last round."""
    most_cores: float = 0.0
    work_core_s: float | None = None
    """All of its work, as far as it is known."""
    barred: dict[str, Barred] = field(default_factory=dict)
    """Nodes that could not start it."""

    @property
    def done_core_s(self) -> float:
        here = self.report.used_core_s * self.speed if self.report else 0.0
        return self.before_core_s + here

    def remember(self, record: Record, now_s: float) -> None:
        """Take its present record into account."""
        before = self.record
        if record == before:
            return
        self.record, self.since_s = record, now_s
        self.came_bytes, self.came_s = 0, now_s
        if before is None or record.state is RecordState.LEAVING:
            self.began_s = now_s
        if record.state is RecordState.ENDED:
            if record.exit_code == 0 and self.report is not None:
                self.work_core_s = self.done_core_s
        elif before is None or before.on != record.on:
            self.placed_at_s = now_s
            self.before_core_s = self.done_core_s
            self.report, self.left, self.evaluations = None, None, ()

    def arrive(self, held: Holding, now_s: float) -> None:
        """Take the progress of its fetch into account, as its owner reports it."""
        record, came_bytes = self.record, held.came_bytes or 0
        if record is None or record.saved is None or held.epoch != record.epoch:
            return
        in_time = now_s - self.since_s <= fetch_s(record.saved)
        if in_time and self.came_bytes < came_bytes <= record.saved.size_bytes:
            self.came_bytes, self.came_s = came_bytes, now_s

    def bar(self, node: str, held: Holding, now_s: float) -> None:
        """Remember it if the node says that it cannot start the job."""
        record = self.record
        if record is None or not held.why or held.epoch != record.epoch:
            return
        if record.on == node:
            fails = record.state is RecordState.PLACED and is_unstarted(held)
        else:
            fails = held.phase is Phase.FAILED
        if fails:
            self.barred[node] = Barred(now_s + BARRED_S, record.digest, held.why)

    def measure(self, report: JobReport, speed: float) -> None:
        """Take a report of its owner into account."""
        last_s = self.last_evaluated_s
        self.evaluations = tuple([one for one in report.evaluations if one.at_s > last_s])
        if self.evaluations:
            self.last_evaluated_s = self.evaluations[-1].at_s
        self.report, self.pause_s, self.speed = report, report.pause_s, speed
        # What was measured on earlier nodes is better than the first reports on this one.
        counts = report.reports >= PACE_REPORTS_MIN or not self.before_core_s
        if report.left is not None and (counts or self.work_core_s is None):
            self.left = Left(*[one * speed for one in report.left])
            self.work_core_s = self.done_core_s + self.left.mid_core_s
        self.most_cores = max(self.most_cores, report.granted_cores)

    def barred_at(self, now_s: float, digest: str) -> Mapping[str, str]:
        """Nodes that are not asked to start this specification of it now, and why."""
        if not self.barred:
            return _NOWHERE  # for most jobs, in every round
        return {
            node: one.why
            for node, one in self.barred.items()
            if now_s < one.until_s and one.digest == digest
        }

    def view(
        self,
        desired: DesiredJob,
        record: Record | None,
        prior: Prior,
        barred: Mapping[str, str] = _NOWHERE,
    ) -> ClusterJob:
        """The job as policies get it; without a record it is queued, and this knows nothing."""
        spec, report = desired.spec, self.report or _NONE
        most = spec.bounds.ceiling_cores
        return ClusterJob(
            name=spec.name,
            image=spec.container.image,
            arrived_s=desired.arrived_s,
            node=None if record is None else record.on,
            weight=spec.weight,
            floor_cores=spec.bounds.floor_cores,
            memory_bytes=spec.container.memory_bytes,
            gpus=spec.container.gpus,
            requires=dict(spec.nodes),
            pulls=spec.container.pull_policy != "never",
            barred=barred,
            left=self._rest(prior) if record else prior.left(spec.container.image, 0.0),
            done_core_s=0.0 if record is None else self.done_core_s,
            parallel_cores=max(self.most_cores, 1.0) if most is None else most,
            granted_cores=report.granted_cores,
            has_target=spec.target is not None,
            evaluations=self.evaluations,
            reports=report.reports,
            steps_per_core_s=report.steps_per_core_s,
            unmovable=report.unmovable,
            pause_s=report.pause_s,
            moves=0 if record is None else record.moves,
            placed_at_s=self.placed_at_s,
            rests_until_s=self.rests_until_s,
        )

    def _rest(self, prior: Prior) -> Left | None:
        """Work until its end, by the best that is known."""
        if self.left is not None:
            return self.left
        if self.work_core_s is None:
            return prior.left(self.image, self.done_core_s)
        mid = max(self.work_core_s - self.done_core_s, 0.0)
        return Left(mid * (1.0 - _MOVED_SPREAD), mid, mid * (1.0 + _MOVED_SPREAD))


class Prior:
    """What is known of the work of a job that has not reported: the mean of those of its image, or
    of all where there is none."""

    def __init__(self, memories: Iterable[JobMemory] = ()) -> None:
        works: dict[str, list[float]] = {}
        for one in memories:
            if one.work_core_s is not None:
                works.setdefault(one.image, []).append(one.work_core_s)
        self._means = {image: statistics.fmean(own) for image, own in works.items()}
        known = [one for own in works.values() for one in own]
        self._mean = statistics.fmean(known) if known else None

    def left(self, image: str, done_core_s: float) -> Left | None:
        """What is left of a job that has done so much; None: nothing is known of any."""
        mid = self._means.get(image, self._mean)
        if mid is None:
            return None
        low, high = _PRIOR_LOW * mid, _PRIOR_HIGH * mid
        return Left(*[max(total - done_core_s, _LEAST * mid) for total in (low, mid, high)])

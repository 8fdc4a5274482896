"""Makes a review of a range of a journal, in one pass over its frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dlsched.api.review_schema import (
    AlarmReview,
    JobReview,
    Kept,
    Review,
    TierReached,
    Trained,
)
from dlsched.api.schema import SCHEMA_VERSION
from dlsched.api.status import target_of
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DlschedError
from dlsched.model.forecast import Forecast, ForecastKind, in_full
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Tier
from dlsched.model.units import counted, render_seconds
from dlsched.review.changes import CHANGES_MAX, ChangesReview
from dlsched.review.estimate import Estimated, estimate, no_estimate, reached_s
from dlsched.review.tally import JobTally, Tally
from dlsched.simulation.scoring import PLAIN
from dlsched.simulation.trace.observed import SLICE_S
from dlsched.simulation.trace.recording import Record
from dlsched.store.journal.reader import JournalReader

ALARMS_MAX = 200
"""Different texts that are kept."""


@dataclass(slots=True)
class _Raised:
    since: str
    lasted_s: float = 0.0
    last_cycle: int = 0


class AlarmsReview:
    """Cycles, in their order."""

    def __init__(self) -> None:
        self._found: dict[str, _Raised] = {}
        self._cycles = 0
        self._last_s = 0.0
        self.left_out = 0

    def take(self, report: CycleReport) -> None:
        now_s = report.snapshot.now_s
        length_s = max(0.0, now_s - self._last_s) if self._cycles else 0.0
        self._last_s = max(now_s, self._last_s)
        self._cycles += 1
        for text in dict.fromkeys(report.alarms):
            found = self._found.get(text)
            if found is None:
                if len(self._found) >= ALARMS_MAX:
                    self.left_out += 1
                    continue
                found = self._found[text] = _Raised(report.wall_time)
            elif found.last_cycle == self._cycles - 1:
                found.lasted_s += length_s
            found.last_cycle = self._cycles

    def result(self) -> tuple[AlarmReview, ...]:
        """The longest first."""
        found = [
            AlarmReview(text, one.since, one.lasted_s, one.last_cycle == self._cycles)
            for text, one in self._found.items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.raised, -one.lasted_s, one.text)))


SLICES_MAX = 1440
"""Slices of a range: a minute each for a day."""
RATIO_MAX = 100.0
"""The largest measured over target that is given."""


class NothingToReport(DlschedError):
    """The range holds no cycle; the message says why, in one line."""


def review(reader: JournalReader, since_s: float, *, estimates: bool = True) -> Review:
    """The review of the last `since_s` of the record. Raises NothingToReport without a cycle."""
    last_s, last = reader.last_now_s(), reader.last_cycle()
    first = reader.whole_at(last_s - since_s)
    found = _Gathered(reader, since_s, last_s, first, last)
    for report in reader.outlines(first, last):
        if report.snapshot.now_s >= last_s - since_s:
            found.take(report)
    return found.review(reader, estimates=estimates)


class _Gathered:
    """What one pass gathers."""

    def __init__(
        self, reader: JournalReader, since_s: float, last_s: float, first: int, last: int
    ) -> None:
        self._asked_s = since_s
        changes = [
            change
            for change in reader.changes_between(first, last, CHANGES_MAX)
            if change.now_s >= last_s - since_s
        ]
        left_out = max(0, reader.count_changes(first, last) - CHANGES_MAX)
        self._changes = ChangesReview(changes, last_s, left_out=left_out)
        begun_s = max(last_s - since_s, reader.first_now_s())
        self._tally = Tally(max(SLICE_S, math.ceil((last_s - begun_s) / SLICES_MAX)))
        self._record = Record()
        self._alarms = AlarmsReview()
        self._policies: dict[str, None] = {}
        self._outlooks: dict[str, tuple[Forecast, ...]] = {}
        self._begins = self._ends = ""

    def take(self, report: CycleReport) -> None:
        self._tally.take(report)
        self._changes.take(report)
        self._record.take(report)
        self._alarms.take(report)
        self._policies[report.policy] = None
        self._outlooks.update(report.outlooks)
        self._begins = self._begins or report.wall_time
        self._ends = report.wall_time

    def review(self, reader: JournalReader, *, estimates: bool) -> Review:
        tally = self._tally
        if not tally.cycles:
            raise NothingToReport(reader.problem or "the journal has no cycle")
        tally.close()
        if estimates:
            estimated = estimate(self._record, tally)
        else:
            estimated = no_estimate(tally, "no estimate was asked for")
        capacity = tally.capacity_core_s / tally.observed_s if tally.observed_s else 0.0
        return Review(
            schema_version=SCHEMA_VERSION,
            begins=self._begins,
            ends=self._ends,
            recorded_s=tally.last_s - tally.origin_s,
            observed_s=tally.observed_s,
            asked_s=self._asked_s,
            cycles=tally.cycles,
            policies=tuple(self._policies),
            capacity_cores=capacity,
            used_core_s=tally.used_core_s,
            foreign_core_s=tally.foreign_core_s if tally.foreign_known else None,
            slice_s=tally.slice_s,
            jobs=tuple(self._jobs(estimated)),
            changes=self._changes.result(),
            alarms=self._alarms.result(),
            estimate=estimated.whole,
            remarks=tuple(self._remarks()),
        )

    def _jobs(self, estimated: Estimated) -> Iterator[JobReview]:
        for name, job in sorted(self._tally.jobs.items()):
            spec = job.last.spec
            numbers = range(self._tally.slices)
            yield JobReview(
                name=name,
                kind=_kind(job),
                target=target.text if (target := target_of(spec.target)) else None,
                adopted=job.last.adopted,
                ran_s=job.ran_s,
                used_core_s=job.used_core_s,
                fair_core_s=job.fair_core_s,
                borrowed_core_s=job.borrowed_core_s,
                lent_core_s=job.lent_core_s,
                kept=_kept(job),
                trained=self._trained(job),
                plain_docker=estimated.jobs[name],
                changes=self._changes.by_job[name],
                ratio=tuple(_finite(job.ratio.get(number)) for number in numbers),
                used_cores=tuple(
                    round(given.used_cores, 3) if (given := job.given.get(number)) else None
                    for number in numbers
                ),
            )

    def _trained(self, job: JobTally) -> Trained | None:
        target = job.last.spec.target
        if not isinstance(target, AccuracyTarget):
            return None
        # `in_full` counts from now, which is the end of the range.
        to_come = [
            f"{one.tier}: {in_full(one, self._tally.last_s)}"
            for one in self._outlooks.get(job.last.name, ())
            if one.kind is not ForecastKind.MET
        ]
        outlook = "; ".join(to_come) if job.last.state.holds else ""
        return Trained(
            metric=target.metric,
            deadline_s=target.deadline_s,
            tiers=tuple(
                TierReached(
                    tier=tier.value,
                    value=target.value_of(tier),
                    reached_s=reached_s(job, tier),
                    wall_time=job.reached[tier][1] if tier in job.reached else None,
                    before=tier in job.reached_before,
                )
                for tier in Tier
            ),
            ran_before=job.ran_before,
            step=job.step,
            value=job.value,
            outlook=outlook or None,
        )

    def _remarks(self) -> Iterator[str]:
        tally = self._tally
        recorded_s = tally.last_s - tally.origin_s
        if recorded_s < 0.98 * self._asked_s and recorded_s < self._asked_s - 60.0:
            yield (
                f"the record covers {render_seconds(recorded_s)} of the "
                f"{render_seconds(self._asked_s)} that were asked for"
            )
        if tuple(self._policies) == (PLAIN,):
            yield (
                "the policy `none` ran in the whole range, so all figures are those of plain "
                "Docker, without limits by dlsched"
            )
        if tally.gaps_s:
            count, whole = len(tally.gaps_s), render_seconds(math.fsum(tally.gaps_s))
            gaps = counted(count, "gap")
            yield f"the record has {gaps}, {whole} in all; that time is not counted"
        retargeted = [job.name for job in tally.jobs.values() if job.retargeted]
        if retargeted:
            yield (
                f"targets changed in the range: {', '.join(retargeted[:5])}; each job is judged "
                "by its last target alone, and from when that was set"
            )
        if self._alarms.left_out:
            yield f"{self._alarms.left_out} further alarms are not shown"


def _kind(job: JobTally) -> str:
    target = job.last.spec.target
    if isinstance(target, LatencyTarget):
        return "service"
    return "training" if isinstance(target, AccuracyTarget) else "other"


def _kept(job: JobTally) -> Kept | None:
    target = job.last.spec.target
    if not isinstance(target, LatencyTarget):
        return None
    return Kept(
        target_s=target.seconds,
        quantile=target.quantile,
        met_s=job.met_s,
        slow_s=job.slow_s,
        silent_s=job.silent_s,
        failing_s=job.failing_s,
        unclear_s=job.unclear_s,
        met_ratio=job.met_ratio,
        measured_s=job.measured_s,
        requests=job.latency.count,
    )


def _finite(ratio: float | None) -> float | None:
    """A service that answers nothing has a ratio without bound: shown as a large one."""
    return None if ratio is None else round(min(ratio, RATIO_MAX), 4)

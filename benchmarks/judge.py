"""Judging runs from their journals: pure, and the same for every policy.

Of services it is judged how many satisfy their targets. A mean over too few requests measures
noise. For a mean latency to be known within the band with about 90 % certainty, a job with
coefficient of variation cv needs (1.645 cv / band)^2 requests: 11 at cv 0.2, 68 at 0.5, 271 at 1
for a band of 10 %. Of trainings it is judged when each reached what, from what the containers
reported and what the kernel counted, not from what a policy made of it. Times are the agent's, so
exact to its cycle of a second.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dlsched.control.ledger.tiers import TierProgress, advanced, settled
from dlsched.estimate.sketch import cv, merge
from dlsched.model.actions import Resize
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import LatencySketch, Sample
from dlsched.model.spec import BAND_RATIO, AccuracyTarget, Tier
from dlsched.model.state import JobState
from dlsched.simulation import bounds, scoring
from dlsched.simulation.scoring import JobResult, Row, RunResult

# ------------------------------------------------------------------ services

_Z = 1.645

Series = Sequence[tuple[float, LatencySketch]]
"""(seconds since the policy took over, what arrived in that second)."""


@dataclass(frozen=True)
class Judged:
    """One job under one policy: its mean latency over the judged window."""

    job: str
    target_s: float
    mean_s: float | None
    requests: int
    needed: int

    @property
    def ratio(self) -> float | None:
        return None if self.mean_s is None else self.mean_s / self.target_s

    @property
    def enough(self) -> bool:
        return self.requests >= self.needed

    @property
    def band(self) -> bool:
        """Two-sided: within 10 % of the target."""
        return self.ratio is not None and abs(self.ratio - 1) <= BAND_RATIO

    @property
    def slo(self) -> bool:
        """One-sided: not slower than the target."""
        return self.ratio is not None and self.ratio <= 1


def arrived(reports: Iterable[CycleReport]) -> dict[str, list[tuple[float, LatencySketch]]]:
    """What arrived, job by job, with seconds since the first of these cycles."""
    series: dict[str, list[tuple[float, LatencySketch]]] = {}
    began_s: float | None = None
    for report in reports:
        began_s = report.snapshot.now_s if began_s is None else began_s
        for job in report.snapshot.jobs:
            at_s = report.snapshot.now_s - began_s
            series.setdefault(job.name, []).append((at_s, job.progress.fresh))
    return series


def requests_needed(variation: float) -> int:
    """Requests for a mean known within the band (90 % two-sided); never fewer than 11."""
    return max(11, math.ceil((_Z * variation / BAND_RATIO) ** 2))


def judge(job: str, target_s: float, series: Series, since_s: float) -> Judged:
    """The job over everything that arrived from `since_s` on."""
    total = merge(*(sketch for at_s, sketch in series if at_s >= since_s))
    needed = requests_needed(cv(total) or 0.0)
    return Judged(job, target_s, total.mean_s, total.count, needed)


def satisfied(judged: Iterable[Judged]) -> tuple[int, int]:
    """How many are within the band, and how many are not slower than their target."""
    jobs = list(judged)
    return sum(job.band for job in jobs), sum(job.slo for job in jobs)


# ------------------------------------------------------------------ trainings


@dataclass(frozen=True)
class Course:
    """What one job did in one run; times are the agent's clock."""

    name: str
    arrived_s: float
    attained: tuple[tuple[float, float], ...]
    """CPU time attained, in core-seconds, by time."""
    ended_s: float | None
    """When it was seen to have ended well; None: never."""
    tiers_s: tuple[float | None, float | None]
    """When the third evaluation in a row reached `deliver`, and `finish`."""

    def work_core_s(self, at_s: float | None) -> float | None:
        """CPU time attained by then, between two cycles in proportion."""
        if at_s is None or not self.attained:
            return None
        if at_s <= self.attained[0][0]:
            return self.attained[0][1]
        for (before_s, before), (after_s, after) in pairwise(self.attained):
            if before_s <= at_s <= after_s:
                part = (at_s - before_s) / (after_s - before_s) if after_s > before_s else 1.0
                return before + part * (after - before)
        return self.attained[-1][1]


@dataclass(frozen=True)
class Measured:
    """One run judged: what the simulator's scoring takes, and what only a real run has."""

    run: RunResult
    courses: Mapping[str, Course]
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further metrics by name."""


def courses(
    reports: Iterable[CycleReport], arrivals: Mapping[str, float], in_a_row: int
) -> dict[str, Course]:
    """What the journal tells of every job in `arrivals` (agent's clock, seconds)."""
    samples: dict[str, dict[Sample, None]] = {name: {} for name in arrivals}
    attained: dict[str, list[tuple[float, float]]] = {name: [] for name in arrivals}
    ended: dict[str, float] = {}
    targets: dict[str, AccuracyTarget] = {}
    for report in reports:
        now_s = report.snapshot.now_s
        for job in report.snapshot.jobs:
            if job.name not in arrivals or not isinstance(job.spec.target, AccuracyTarget):
                continue
            targets[job.name] = job.spec.target
            # A journal's cycles each carry the last few hundred reports: each counts once.
            samples[job.name] |= dict.fromkeys(job.progress.samples)
            if job.name not in ended:
                attained[job.name].append((now_s, job.attained_core_s))
            if job.state is JobState.FINISHED:
                ended.setdefault(job.name, now_s)
    found = {}
    for name, arrived_s in arrivals.items():
        target = targets.get(name)
        found[name] = Course(
            name=name,
            arrived_s=arrived_s,
            attained=tuple(attained[name]),
            ended_s=ended.get(name),
            tiers_s=tiers_s(samples[name], target, in_a_row) if target else (None, None),
        )
    return found


def tiers_s(
    samples: Iterable[Sample], target: AccuracyTarget, in_a_row: int
) -> tuple[float | None, float | None]:
    """When each tier was reached by so many evaluations in a row; None: never."""
    progress = TierProgress("", target)
    for sample in samples:
        progress = advanced(progress, sample, in_a_row)
    tiers = settled(progress).tiers
    first, second = tiers.delivered, tiers.finished
    return (
        None if first is None else first.at_s,
        None if second is None else second.at_s,
    )


def judged(
    policy: str,
    seed: int,
    reports: Sequence[CycleReport],
    arrivals: Mapping[str, float],
    in_a_row: int,
    extra: Mapping[str, float],
) -> Measured:
    """The run in the simulator's terms; times count from the first arrival."""
    found = courses(reports, arrivals, in_a_row)
    began_s = min(arrivals.values())
    last_s = reports[-1].snapshot.now_s
    alarms = dict.fromkeys(alarm for report in reports for alarm in report.alarms)
    run = RunResult(
        policy=policy,
        seed=seed,
        ended_s=last_s - began_s,
        cycles=len(reports),
        updates=updates(reports),
        jobs=tuple(_job_result(found[name], began_s, last_s) for name in sorted(found)),
        alarms=tuple(alarms),
    )
    # The same training takes more CPU time on a host that others slow down, or when throttled.
    work_core_s = math.fsum(one.attained[-1][1] for one in found.values() if one.attained)
    return Measured(
        run,
        found,
        {
            **extra,
            "work_core_s": work_core_s,
            "alarms": len(alarms),
        },
    )


def updates(reports: Iterable[CycleReport]) -> int:
    """How many changes of limits or shares the engine was asked for, and made."""
    return sum(
        isinstance(outcome.action, Resize) and outcome.ok
        for report in reports
        for outcome in report.outcomes
    )


def foreign_cores(reports: Sequence[CycleReport]) -> float:
    """Cores that others on the host used, mean over the time; NaN when it was never read.

    By time and not by cycle: a cycle that an exit wakes is a few ms long, and what the container
    used last, nobody can count any more.
    """
    used_core_s = passed_s = 0.0
    for before, after in pairwise(report.snapshot for report in reports):
        if after.node.foreign_cores is not None:
            used_core_s += after.node.foreign_cores * (after.now_s - before.now_s)
            passed_s += after.now_s - before.now_s
    return used_core_s / passed_s if passed_s > 0 else math.nan


def rows(scenario: str, cores: float, runs: Sequence[Measured]) -> list[Row]:
    """Every number of every run, beside plain Docker under the same seed and the optimum."""
    plain = {one.run.seed: one for one in runs if one.run.policy == scoring.PLAIN}
    found: list[Row] = []
    for seed, base in plain.items():
        same = [one for one in runs if one.run.seed == seed]
        known = works(same, cores)
        optimum, alone = (
            scoring.training_optima(known.values(), cores),
            scoring.alone_s(known, cores),
        )
        for one in same:
            more = (one.extra, base.extra)
            found += scoring.run_rows(scenario, one.run, base.run, optimum, alone, more)
    return found


def works(runs: Sequence[Measured], cores: float) -> dict[str, bounds.Work]:
    """What each job computes: the least CPU time that it took in any of these runs.

    Start of its container included. So no policy is held against work that waiting made longer.
    """
    first = runs[0].courses
    began_s = min(course.arrived_s for course in first.values())
    found = {}
    for name, course in first.items():
        mine = [one.courses[name] for one in runs]
        found[name] = bounds.Work(
            arrives_s=course.arrived_s - began_s,
            total_core_s=_least(c.work_core_s(c.ended_s) for c in mine) or 0.0,
            threads=cores,
            tier_core_s={
                tier: _least(c.work_core_s(c.tiers_s[place]) for c in mine)
                for place, tier in enumerate(Tier)
            },
        )
    return found


def by_job(runs: Sequence[Measured], policy: str, goal: str) -> dict[str, float]:
    """Each job's time to that goal over plain Docker's, the mean over the seeds that both have.

    The best of these means is a job that gains again and again, not one that was lucky once.
    """
    plain = {one.run.seed: one.run.times(goal) for one in runs if one.run.policy == scoring.PLAIN}
    ratios: dict[str, list[float]] = {}
    for one in runs:
        if one.run.policy != policy or one.run.seed not in plain:
            continue
        for name, time_s in one.run.times(goal).items():
            ratios.setdefault(name, []).append(time_s / plain[one.run.seed][name])
    return {name: statistics.fmean(each) for name, each in ratios.items()}


def _job_result(course: Course, began_s: float, last_s: float) -> JobResult:
    first, second = course.tiers_s
    return JobResult(
        name=course.name,
        kind="training",
        arrived_s=course.arrived_s - began_s,
        there_s=(course.ended_s or last_s) - course.arrived_s,
        tier1_s=scoring.since(first, course.arrived_s),
        tier2_s=scoring.since(second, course.arrived_s),
        completion_s=scoring.since(course.ended_s, course.arrived_s),
        goals=("tier1", "tier2", "completion"),
    )


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)

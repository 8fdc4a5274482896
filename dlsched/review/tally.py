"""Counts, slice by slice, how long targets were met and who used which cores. Recorded and
simulated cycles are counted alike, so that they can be compared. Memory grows with slices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.estimate.measured import REQUESTS_MIN, is_failing
from dlsched.estimate.sketch import against_target_s, measured_s, merge
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Tier
from dlsched.model.state import JobView, NodeView
from dlsched.policies.fair_share import fair_shares

HOLD_S = 60.0
"""Time until which slices with too few requests are judged together."""
_START_S = 1.0
"""A container may have run for so long when it is observed first."""
_GAP_S = 60.0
"""A longer time between two cycles was not observed: it counts for no job."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a job had and used in one slice."""

    used_cores: float
    """In the mean over the slice, not only while it ran."""
    ran_ratio: float
    """Fraction of the slice in which it ran."""
    ceiling_cores: float | None
    """Mean, where a time without a ceiling counts as the whole node; None: it never had one."""
    cpu_shares: float
    idle: bool
    """Whether it was mostly in the kernel's idle class."""


@dataclass(slots=True)
class _Slice:
    """One job's open slice."""

    ran_s: float = 0.0
    used_core_s: float = 0.0
    ceiling_core_s: float = 0.0
    bounded: bool = False
    shares_s: float = 0.0
    idle_s: float = 0.0
    fresh: list[LatencySketch] = field(default_factory=list)
    hung: bool = False


@dataclass(slots=True)
class JobTally:
    """One job, over the range."""

    name: str
    last: JobView
    ran_s: float = 0.0
    used_core_s: float = 0.0
    fair_core_s: float = 0.0
    borrowed_core_s: float = 0.0
    lent_core_s: float = 0.0
    met_s: float = 0.0
    slow_s: float = 0.0
    silent_s: float = 0.0
    failing_s: float = 0.0
    """Part of `slow_s` in which too many requests failed, however quick the answers were."""
    unclear_s: float = 0.0
    """These four, `latency` and `ratio` are of the present target alone."""
    latency: LatencySketch = LatencySketch()
    retargeted: bool = False
    ran_before: bool = False
    """Whether it ran already in the first cycle."""
    begun_s: float | None = None
    reached: dict[Tier, tuple[float, str]] = field(default_factory=dict)
    """Time and wall time at which a tier was reached in the range."""
    reached_before: set[Tier] = field(default_factory=set)
    step: int | None = None
    value: float | None = None
    ratio: dict[int, float] = field(default_factory=dict)
    """Measured over target, by slice."""
    given: dict[int, Given] = field(default_factory=dict)
    open: _Slice = field(default_factory=_Slice)
    _held: list[tuple[int, float, LatencySketch]] = field(default_factory=list)
    """Slices that have too few requests yet: number, time, requests."""

    @property
    def met_ratio(self) -> float | None:
        """Of the time with reports."""
        reported_s = self.met_s + self.slow_s
        return self.met_s / reported_s if reported_s else None

    @property
    def measured_s(self) -> float | None:
        target = self.last.spec.target
        if not isinstance(target, LatencyTarget):
            return None
        return measured_s(self.latency, target.quantile)

    def judge(self, number: int) -> None:
        """Judge the open slice, or hold it until there are enough requests."""
        target, now = self.last.spec.target, self.open
        if not isinstance(target, LatencyTarget) or not now.ran_s:
            return
        fresh = merge(*now.fresh)
        self.latency = merge(self.latency, fresh)
        if not (fresh.count or fresh.errors) and now.hung:
            self.close_held(target)
            self.slow_s += now.ran_s
            self.ratio[number] = math.inf
            return
        self._held.append((number, now.ran_s, fresh))
        count = sum(one.count + one.errors for _, _, one in self._held)
        if count >= REQUESTS_MIN or math.fsum(time_s for _, time_s, _ in self._held) >= HOLD_S:
            self.close_held(target)

    def close_held(self, target: LatencyTarget) -> None:
        """Judge what was held together; too few requests count as silence."""
        fresh = merge(*(one for _, _, one in self._held))
        time_s = math.fsum(time_s for _, time_s, _ in self._held)
        found_s = against_target_s(fresh, target)
        if is_failing(fresh, self.last.max_failed_ratio):
            self.slow_s += time_s
            self.failing_s += time_s
            self.ratio.update((number, math.inf) for number, _, _ in self._held)
        elif fresh.count < REQUESTS_MIN:
            self.silent_s += time_s
        elif found_s is None:
            self.unclear_s += time_s
        else:
            if found_s <= target.seconds:
                self.met_s += time_s
            else:
                self.slow_s += time_s
            self.ratio.update((number, found_s / target.seconds) for number, _, _ in self._held)
        self._held.clear()


class Tally:
    """Cycles of one node, in their order."""

    def __init__(self, slice_s: float, names: Mapping[str, str] | None = None) -> None:
        """`names`: what jobs are counted under, where that is another name."""
        self.slice_s = slice_s
        self.jobs: dict[str, JobTally] = {}
        self.origin_s = self.last_s = 0.0
        self.cycles = 0
        self.used_core_s = self.foreign_core_s = 0.0
        self.foreign_known = False
        self.observed_s = 0.0
        self.capacity_core_s = 0.0
        self.gaps_s: list[float] = []
        self._names = names or {}
        self._number = 0
        self._slice_s = 0.0
        """Observed time of the open slice."""
        self._slice_core_s = 0.0
        """The node's capacity in it."""

    def take(self, report: CycleReport) -> None:
        """Count a cycle; one that is not later than the last is left out."""
        snapshot = report.snapshot
        now_s = snapshot.now_s
        if not self.cycles:
            self.origin_s = self.last_s = now_s
        elif now_s <= self.last_s:
            return
        length_s = now_s - self.last_s
        if length_s > max(_GAP_S, 2.0 * self.slice_s):
            self.gaps_s.append(length_s)
            length_s = 0.0
        # A cycle measures the time before it.
        number = max(0, math.ceil((now_s - self.origin_s) / self.slice_s - 1e-9) - 1)
        if number != self._number:
            self._close()
            self._number = number
        first = not self.cycles
        self.cycles += 1
        self.last_s = now_s
        self._take_node(snapshot.node, length_s)
        for view in snapshot.jobs:
            self._take_job(view, report, length_s, first=first)

    def close(self) -> None:
        """Count the open slice and what was held."""
        self._close()
        for job in self.jobs.values():
            target = job.last.spec.target
            if isinstance(target, LatencyTarget):
                job.close_held(target)

    @property
    def slices(self) -> int:
        return self._number + 1 if self.cycles else 0

    def _take_node(self, node: NodeView, length_s: float) -> None:
        self.observed_s += length_s
        self._slice_s += length_s
        self._slice_core_s += node.capacity_cores * length_s
        self.capacity_core_s += node.capacity_cores * length_s
        if node.foreign_cores is not None:
            self.foreign_known = True
            self.foreign_core_s += node.foreign_cores * length_s

    def _take_job(
        self, view: JobView, report: CycleReport, length_s: float, *, first: bool
    ) -> None:
        name = self._names.get(view.name, view.name)
        job = self.jobs.get(name)
        now_s, capacity = report.snapshot.now_s, report.snapshot.node.capacity_cores
        if job is None:
            # More CPU time than there was since the beginning: a daemon needs some cycles to see
            # what runs.
            most_core_s = capacity * (now_s - self.origin_s + _START_S)
            earlier = (first and view.runs) or view.attained_core_s > most_core_s
            job = self.jobs[name] = JobTally(name, view, ran_before=earlier)
            before: JobView | None = None
        else:
            before = job.last if job.last.name == view.name else None
        if before is not None and before.spec.target != view.spec.target:
            self._retarget(job, view)
        job.last = view
        if view.runs and job.begun_s is None:
            job.begun_s = now_s
        _take_training(job, view, now_s, report.wall_time, first=before is None)
        if before is None or not (view.runs or before.runs):
            return
        now = job.open
        now.used_core_s += (
            max(0.0, view.attained_core_s - before.attained_core_s) if length_s else 0.0
        )
        if not view.runs:
            return
        now.ran_s += length_s
        ceiling = view.actual.cpu_cores
        now.bounded = now.bounded or ceiling is not None
        now.ceiling_core_s += length_s * (capacity if ceiling is None else ceiling)
        now.shares_s += length_s * (view.cpu_shares or 0)
        now.idle_s += length_s * view.cpu_idle
        if view.progress.fresh.count or view.progress.fresh.errors:
            now.fresh.append(view.progress.fresh)
        target = view.spec.target
        if isinstance(target, LatencyTarget):
            now.hung = view.progress.oldest_s > target.seconds

    def _retarget(self, job: JobTally, view: JobView) -> None:
        target = job.last.spec.target
        if isinstance(target, LatencyTarget):
            job.judge(self._number)
            job.close_held(target)
            job.open.fresh = []
        job.retargeted = True
        job.latency = LatencySketch()
        job.met_s = job.slow_s = job.silent_s = job.unclear_s = 0.0
        job.ratio.clear()
        if isinstance(view.spec.target, AccuracyTarget):
            job.reached.clear()

    def _close(self) -> None:
        if self._slice_s > 0:
            self._divide()
        for job in self.jobs.values():
            job.judge(self._number)
            now = job.open
            if now.ran_s or now.used_core_s:
                length_s = max(self._slice_s, 1e-9)
                ran_s = max(now.ran_s, 1e-9)
                job.given[self._number] = Given(
                    used_cores=now.used_core_s / length_s,
                    ran_ratio=now.ran_s / length_s,
                    ceiling_cores=now.ceiling_core_s / ran_s if now.bounded else None,
                    cpu_shares=now.shares_s / ran_s,
                    idle=now.idle_s > 0.5 * ran_s,
                )
                job.ran_s += now.ran_s
                job.used_core_s += now.used_core_s
                self.used_core_s += now.used_core_s
            job.open = _Slice()
        self._slice_s = self._slice_core_s = 0.0

    def _divide(self) -> None:
        """Who used more than a fair share, and whose share that was."""
        running = [job for job in self.jobs.values() if job.open.ran_s]
        first = [job.last for job in running if not job.last.spec.background]
        fair = fair_shares(first, self._slice_core_s / self._slice_s)
        over: list[float] = []
        for job in running:
            fair_core_s = fair.get(job.last.name, 0.0) * job.open.ran_s
            job.fair_core_s += fair_core_s
            over.append(job.open.used_core_s - fair_core_s)
        borrowed = math.fsum(one for one in over if one > 0)
        unused = math.fsum(-one for one in over if one < 0)
        # What no one used was not lent.
        part = min(1.0, borrowed / unused) if unused > 0 else 0.0
        for job, beyond in zip(running, over, strict=True):
            job.borrowed_core_s += max(0.0, beyond)
            job.lent_core_s += max(0.0, -beyond) * part


def _take_training(
    job: JobTally, view: JobView, now_s: float, wall_time: str, *, first: bool
) -> None:
    target = view.spec.target
    if not isinstance(target, AccuracyTarget):
        return
    tiers = view.tiers
    for tier, reached in ((Tier.DELIVER, tiers.delivered), (Tier.FINISH, tiers.finished)):
        if reached is None or tier in job.reached or tier in job.reached_before:
            continue
        if first:
            job.reached_before.add(tier)
        else:
            job.reached[tier] = (min(reached.at_s, now_s), wall_time)
    for sample in reversed(view.progress.samples):
        found = dict(sample.metrics).get(target.metric)
        if found is not None:
            job.step, job.value = sample.step, found
            break

"""Turns recorded cycles into recommended limits.

`min` is what a container needs for its target. The rest of the node is divided by water-filling, up
to what each would use. Where one would use more than its part, all get CPU weights in proportion to
their parts, so that under plain Docker too each has its part while all want CPU. One with a `min`
gets its part as `max` as well. One without has no known need that a ceiling could be held to: a
ceiling would only keep it from CPU that is idle. Where the needs do not fit together, the cheapest
by weight are kept and the others named.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dlsched.estimate.measured import is_failing
from dlsched.estimate.sketch import against_target_s, measured_s, merge
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DlschedError
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import MAX_FAILED_RATIO, AccuracyTarget, LatencyTarget, Target
from dlsched.model.state import JobView
from dlsched.model.units import CORES_MIN, render_cores
from dlsched.policies.fair_share import Claim, water_fill
from dlsched.review.advice.memory import MemoryUses
from dlsched.review.advice.needs import progress_text, service_need, training_need
from dlsched.review.advice.result import (
    LEAST_REQUESTS,
    Advice,
    AdvisedLimits,
    MeasuredTarget,
    Recommended,
    Use,
)
from dlsched.simulation.trace.observed import SLICE_S, ObservedJob
from dlsched.simulation.trace.recording import Record, node_is_full


@dataclass(slots=True)
class Latencies:
    """Latencies of one service, by slice."""

    job: ObservedJob
    target: LatencyTarget
    """The last one, of which everything else is."""
    max_failed_ratio: float = MAX_FAILED_RATIO
    slice_at: int = -1
    now: LatencySketch = LatencySketch()
    whole: LatencySketch = LatencySketch()
    slices: int = 0
    met: int = 0
    factors: list[tuple[float, int]] = field(default_factory=list)
    """Of each slice: the quantile over the mean, and its requests."""

    def take(self, target: LatencyTarget, fresh: LatencySketch, now_s: float) -> None:
        """Add what a cycle received."""
        at = int(now_s // SLICE_S)
        if at != self.slice_at or target != self.target:
            self.close()
            self.slice_at = at
        if target != self.target:
            self.target, self.slices, self.met = target, 0, 0
            self.whole, self.factors = LatencySketch(), []
        self.now = merge(self.now, fresh)

    def close(self) -> None:
        """End the present slice."""
        target, sketch, self.now = self.target, self.now, LatencySketch()
        seconds = against_target_s(sketch, target)
        failing = is_failing(sketch, self.max_failed_ratio)
        if seconds is None and not failing:
            return
        self.whole = merge(self.whole, sketch)
        self.slices += 1
        self.met += seconds is not None and seconds <= target.seconds and not failing
        mean_s = sketch.mean_s
        if target.quantile is not None and mean_s and sketch.count >= LEAST_REQUESTS:
            tail_s = measured_s(sketch, target.quantile)
            if tail_s is not None:
                self.factors.append((tail_s / mean_s, sketch.count))

    def measured(self) -> MeasuredTarget | None:
        """The target's kind of latency over all requests; None: none came."""
        seconds = against_target_s(self.whole, self.target)
        if seconds is None:
            return None
        met = self.met / self.slices if self.slices else float(seconds <= self.target.seconds)
        return MeasuredTarget(seconds, self.whole.count, met)

    def factor(self) -> float:
        """The quantile over the mean; 1 for a mean."""
        target = self.target
        if target.quantile is None:
            return 1.0
        if self.factors:
            requests = sum(count for _, count in self.factors)
            return max(1.0, math.fsum(each * count for each, count in self.factors) / requests)
        tail_s = measured_s(self.whole, target.quantile)
        return max(1.0, tail_s / self.whole.mean_s) if tail_s and self.whole.mean_s else 1.0


_BUSY = 0.95
"""Quantile of the slices that counts as a container's busy use."""
_HEADROOM = 1.05
"""Above the busy use of a container, and above all that is useful to it."""
_SELDOM = 0.05
"""A node that is full for a smaller part of the time hides no one's use."""
_STEP_CORES = 0.01
"""Limits are given with two decimals."""
_SHARES = 1024
"""The engine's default weight: here that of one core, so that containers which are not recorded
count as one core each."""
_SHARES_LEAST, _SHARES_MOST = 2, 262_144
"""The engine's bounds."""


class NothingToAdvise(DlschedError):
    """The record shows no container; the message says why, in one line."""


class Adviser:
    """Gathers cycles, in their order, and recommends."""

    def __init__(self) -> None:
        self._record = Record()
        self._latencies: dict[str, Latencies] = {}
        self._memory: dict[str, MemoryUses] = {}
        self._policies: dict[str, None] = {}
        self._full_cycles = 0

    def take(self, report: CycleReport) -> None:
        """Add a cycle. Raises ArithmeticError or ValueError for numbers that make no sense."""
        self._record.take(report)
        self._policies[report.policy] = None
        self._full_cycles += node_is_full(report.snapshot)
        for view in report.snapshot.jobs:
            if view.container_id is not None:
                uses = self._memory.get(view.name)
                if uses is None or uses.container != view.container_id:
                    uses = self._memory[view.name] = MemoryUses(view.container_id)
                uses.take(view)
            with suppress(ArithmeticError, ValueError):  # one job's numbers cost no other job's
                self._take_requests(view, report.snapshot.now_s)

    def _take_requests(self, view: JobView, now_s: float) -> None:
        job, target = self._record.present(view.name), view.spec.target
        if job is None or not isinstance(target, LatencyTarget):
            return
        if not (job.fresh.count or job.fresh.errors):
            return
        found = self._latencies.get(view.name)
        if found is None or found.job is not job:
            found = self._latencies[view.name] = Latencies(job, target)
        found.max_failed_ratio = view.max_failed_ratio
        found.take(target, job.fresh, now_s)

    def advice(self) -> Advice:
        """The recommendations. Raises NothingToAdvise without a container that ran."""
        record = self._record
        if record.last is None:
            raise NothingToAdvise("no cycle of the journal could be read")
        # A name's last life stands for it.
        jobs = {job.name: job for job in record.jobs if job.started_s is not None and job.last}
        if not jobs:
            raise NothingToAdvise(f"no container ran in these {record.cycles} cycles")
        node = record.last.node
        other = record.other_cores()
        other_cores = statistics.median(other) if other else 0.0
        room_cores = max(CORES_MIN, node.capacity_cores - other_cores)
        # Other work may yield: it makes needs crowded, but puts none out of reach.
        whole_cores = node.capacity_cores
        needs = {name: self._need(job, node.cores, whole_cores) for name, job in jobs.items()}
        remarks = list(record.remarks())
        if other_cores >= _STEP_CORES:
            remarks.append(
                f"other work on the host used at least {render_cores(other_cores)} half of the "
                f"time, and {render_cores(other[-1])} at most: {render_cores(room_cores)} are left "
                "for these containers"
            )
        return Advice(
            tuple(self._recommended(jobs, needs, room_cores)),
            room_cores,
            record.last.now_s - record.begun_s,
            tuple(self._policies),
            tuple(remarks),
        )

    # ------------------------------------------------------------------ one container

    def _need(self, job: ObservedJob, cores: float, room_cores: float) -> AdvisedLimits:
        try:
            return self._fitted(job, cores, room_cores)
        except (ArithmeticError, ValueError) as error:  # no agent writes such a record
            return AdvisedLimits(notes=(f"the recorded numbers make no sense: {error}",))

    def _fitted(self, job: ObservedJob, cores: float, room_cores: float) -> AdvisedLimits:
        target = job.spec.target
        if isinstance(target, LatencyTarget):
            latencies = self._latencies_of(job)
            measured = None if latencies is None else latencies.measured()
            factor = 1.0 if latencies is None else latencies.factor()
            need = service_need(job, target, factor, cores, room_cores, measured)
            if need.out_of_reach is not None and _met(target, measured):
                return _as_it_was(job, room_cores)
            return need
        if isinstance(target, AccuracyTarget):
            return training_need(job, target, room_cores)
        return AdvisedLimits()

    def _latencies_of(self, job: ObservedJob) -> Latencies | None:
        found = self._latencies.get(job.name)
        if found is None or found.job is not job:
            return None
        found.close()
        return found

    def _recommended(
        self, jobs: Mapping[str, ObservedJob], needs: Mapping[str, AdvisedLimits], room_cores: float
    ) -> Iterator[Recommended]:
        last_s = 0.0 if self._record.last is None else self._record.last.now_s
        needs = _fitting(jobs, needs, room_cores)
        least = _floors(needs)
        lost: dict[str, str] = {}
        seldom = self._full_cycles < _SELDOM * self._record.cycles
        uses = {
            name: _would_use(job, needs[name], room_cores, seldom=seldom)
            for name, job in jobs.items()
        }
        for together in _together(jobs):
            for name, why in _crowded_out(jobs, least, together, room_cores).items():
                lost.setdefault(name, why)
        parts: dict[str, float] = {}
        for together in _together(jobs):
            claims = {}
            for name in together:
                floor = CORES_MIN if name in lost else least.get(name, CORES_MIN)
                claims[name] = Claim(jobs[name].spec.weight, floor, max(floor, uses[name]))
            for name, cores in water_fill(room_cores, claims).items():
                parts[name] = min(parts.get(name, math.inf), cores)
        crowded = {name for name, cores in parts.items() if cores < uses[name] - _STEP_CORES}
        for name in sorted(jobs):
            job, need = jobs[name], needs[name]
            target, measured = job.spec.target, self._measured(job)
            if name in lost and _met(target, measured):
                need = replace(need, does_not_fit=lost[name])
            elif name in lost:
                need = replace(need, out_of_reach=lost[name])
            floor_cores = None if name in lost or need.out_of_reach else least.get(name)
            part = parts[name] if name in crowded else None
            limited = part is not None and floor_cores is not None
            yield Recommended(
                name=name,
                adopted=bool(job.last and job.last.adopted),
                target=target,
                recorded_s=_recorded_s(job, last_s),
                use=_use(job),
                measured=measured,
                progress=progress_text(job, target) if isinstance(target, AccuracyTarget) else "",
                need=need,
                min_cores=floor_cores,
                max_cores=max(_down(parts[name]), floor_cores or 0.0) if limited else None,
                cpu_shares=_shares(parts[name]) if crowded else None,
                weight=job.spec.weight,
                why=_why(job, need, part),
                memory=self._memory[name].advice() if name in self._memory else None,
            )

    def _measured(self, job: ObservedJob) -> MeasuredTarget | None:
        found = self._latencies_of(job)
        return None if found is None or found.target != job.spec.target else found.measured()


def _use(job: ObservedJob) -> Use | None:
    """By slices, without the first and the last, which it may not have run through."""
    pieces = sorted(job.by_slice)
    inner = [job.by_slice[piece] / SLICE_S for piece in pieces[1:-1]]
    if not inner:
        return None
    inner.sort()
    busy = inner[min(len(inner) - 1, math.ceil(_BUSY * len(inner)) - 1)]
    return Use(statistics.fmean(inner), busy, inner[-1])


def _met(target: Target | None, measured: MeasuredTarget | None) -> bool:
    """Whether the record itself shows that the target can be met."""
    return (
        isinstance(target, LatencyTarget)
        and measured is not None
        and measured.seconds <= target.seconds
    )


def _as_it_was(job: ObservedJob, room_cores: float) -> AdvisedLimits:
    """The need of a service that met its target, though its requests do not show how."""
    use = _use(job)
    note = "the recorded requests do not show what a limit would do"
    if use is None:
        return AdvisedLimits(notes=(note,))
    return AdvisedLimits(
        min(room_cores, max(CORES_MIN, _HEADROOM * use.busy_cores)),
        notes=(f"{note}: the limit is what the container used, and a little more",),
    )


def _why(job: ObservedJob, need: AdvisedLimits, part: float | None) -> str:
    """`part`: what it gets while all want CPU; None: all that it would use."""
    if need.out_of_reach is not None:
        return need.out_of_reach
    target = job.spec.target
    rest = "no limit"
    if part is not None:
        gives = f"the CPU weight gives the job {render_cores(part)}"
        rest += f"; {gives} while all jobs want CPU, and idle CPU"
    if need.does_not_fit is not None:
        return f"target met so far with {rest}; no guaranteed minimum fits: {need.does_not_fit}"
    if target is None:
        return f"no target: {rest}"
    if need.cores is None:
        due = isinstance(target, AccuracyTarget) and target.deadline_s is None
        reason = "no deadline" if due else "the job's need is not known"
        return "; ".join([f"{reason}: {rest}", *need.notes])
    likely = "probably " if need.guessed or need.cores == need.likely_cores else ""
    met = f"{likely}meets the target" + (", if the job can use so much CPU" if need.assumed else "")
    return "; ".join([met, *need.notes])


# ---------------------------------------------------------------------- all together


def _floors(needs: Mapping[str, AdvisedLimits]) -> dict[str, float]:
    return {name: _up(need.cores) for name, need in needs.items() if need.cores is not None}


def _fitting(
    jobs: Mapping[str, ObservedJob], needs: Mapping[str, AdvisedLimits], room_cores: float
) -> dict[str, AdvisedLimits]:
    """The needs, with the likely ones instead of the cautious where these do not fit together."""
    floors, found = _floors(needs), {}
    for together in _together(jobs):
        if math.fsum(floors.get(name, 0.0) for name in together) > room_cores:
            found.update(dict.fromkeys(together))
    return {name: _between(need, fits=name not in found) for name, need in needs.items()}


def _between(need: AdvisedLimits, *, fits: bool) -> AdvisedLimits:
    """A need of which two answers are possible, with the one that is recommended."""
    if need.cores is None or need.likely_cores is None:
        return need
    which = (
        "the larger limit is recommended"
        if fits
        else "the smaller limit is recommended, as the larger does not fit beside the other jobs"
    )
    note = (
        "no limit ever held the job back, so how much a limit slows it down is not known: the job "
        f"needs {render_cores(need.likely_cores)} to {render_cores(need.cores)}; {which}"
    )
    cores = need.cores if fits else need.likely_cores
    return replace(need, cores=cores, notes=(note, *need.notes))


def _together(jobs: Mapping[str, ObservedJob]) -> Iterator[tuple[str, ...]]:
    """The names present at each arrival: no other moment has more of them."""
    found = set()
    for moment_s in sorted({job.first_s for job in jobs.values()}):
        names = tuple(name for name, job in jobs.items() if job.first_s <= moment_s <= _end_s(job))
        if names not in found:
            found.add(names)
            yield names


def _end_s(job: ObservedJob) -> float:
    ends = [at_s for at_s in (job.left_s, job.ended_s) if at_s is not None]
    return min(ends, default=math.inf)


def _recorded_s(job: ObservedJob, last_s: float) -> float:
    """How long this run of it was recorded; `last_s`: the end of the record."""
    return max(0.0, min(_end_s(job), last_s) - max(job.first_s, job.started_s or 0.0))


def _would_use(job: ObservedJob, need: AdvisedLimits, room_cores: float, *, seldom: bool) -> float:
    """Cores that it would use if nothing held it back; all, where that never showed. `seldom`: the
    node was seldom full. What reports nothing has no windows, and a ceiling of its own holds it."""
    use = _use(job)
    free = [window.used_cores for window in job.windows if window.free]
    if use is not None and (free or (seldom and not job.windows)):
        return min(room_cores, _HEADROOM * max([use.most_cores, *free]))
    useful = need.useful_cores
    return room_cores if useful is None else min(room_cores, _HEADROOM * useful)


def _crowded_out(
    jobs: Mapping[str, ObservedJob],
    least: Mapping[str, float],
    together: tuple[str, ...],
    room_cores: float,
) -> dict[str, str]:
    """Those whose needs do not fit beside the others', with the reason: the dearest by weight."""
    wanting = [name for name in together if name in least]
    whole = math.fsum(least[name] for name in wanting)
    left, lost = room_cores, {}

    def price(name: str) -> tuple[float, str]:
        return least[name] / jobs[name].spec.weight, name

    for name in sorted(wanting, key=price):
        if least[name] <= left + 1e-9:
            left -= least[name]
            continue
        needs = f"the job needs {render_cores(least[name])}"
        if len(wanting) == 1:
            lost[name] = f"{needs}; other programs on the host leave {render_cores(room_cores)}"
            continue
        lost[name] = (
            f"{needs}, and all {len(wanting)} jobs need {render_cores(whole)}, more than the "
            f"{render_cores(room_cores)} there: the job comes last, with the least "
            f"weight for each core needed (weight {jobs[name].spec.weight:g})"
        )
    return lost


def _shares(cores: float) -> int:
    return min(_SHARES_MOST, max(_SHARES_LEAST, round(_SHARES * cores)))


def _up(cores: float) -> float:
    return round(math.ceil(cores / _STEP_CORES - 1e-6) * _STEP_CORES, 2)


def _down(cores: float) -> float:
    return round(math.floor(cores / _STEP_CORES + 1e-6) * _STEP_CORES, 2)

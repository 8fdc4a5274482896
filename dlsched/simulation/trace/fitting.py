"""Response curves from what was seen: work a step, start-up, threads; a service's latency law.

Owns the arithmetic, robust against single outliers throughout. It must not know journals, nor what
becomes of the numbers.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlsched.simulation.trace.observed import Attempt, Window

_PAIRS_OF = 150
"""So many points of an attempt are paired with each other."""
_ATTEMPTS_MAX = 10
"""Of more attempts than that, those with the most points tell."""
_LEAST_S = 3.0
"""Shorter windows tell nothing of the cores used."""
_LEAST_LATENCY_S = 1e-9
"""Nothing answers faster, whatever a container says."""
_LEVEL_CORES = 0.05
"""Ceilings that differ by less are one level."""
_FREE_RATIO = 0.9
"""Who uses less of a ceiling in the mean is not held back by it."""
_WHOLE_RATIO = 0.05
"""Threads so near to a whole number are that number."""
_SHIFT_RATIO, _SHIFT_LEAST_S = 1.25, 60.0
"""A load is another one when it differs by that factor, for at least so long."""
SHIFTS_MAX = 100
"""A load that comes and goes all day long is cut no more often than that."""
_BUCKET_CV = 0.02 / math.sqrt(12.0)
"""What counting in buckets 2 % wide adds to a coefficient of variation, in quadrature."""
_ALMOST_BEST, _ALMOST_BEST_RATIO = 1.1, 0.01
"""So much more of a relative error does not speak against fewer threads."""
_SPREAD_RATIO = 1.2
"""Latencies must differ by that factor before they can tell an open loop from a closed one."""


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """The value that half of the weight lies below; pairs are (value, weight). Not of nothing."""
    ordered = sorted(pairs)
    half, below = math.fsum(weight for _, weight in ordered) / 2.0, 0.0
    for value, weight in ordered:
        below += weight
        if below >= half:
            return value
    return ordered[-1][0]


# ---------------------------------------------------------------------- trainings


def step_work(attempts: Sequence[Attempt]) -> tuple[float, float] | None:
    """Core-seconds a step and before the first one; None when the steps do not tell.

    The slope is Theil's and Sen's (the median over pairs, by their distance), the intercept the
    median of what is left.
    """
    slopes: list[tuple[float, float]] = []
    for one in sorted(attempts, key=lambda one: len(one.points))[-_ATTEMPTS_MAX:]:
        stride = max(1, math.ceil(len(one.points) / _PAIRS_OF))
        pairs = itertools.combinations(one.points[::stride], 2)
        slopes += [
            ((core1 - core0) / (step1 - step0), float(step1 - step0))
            for (step0, core0), (step1, core1) in pairs
            if step1 > step0
        ]
    first = attempts[0] if attempts else None
    if not slopes:
        if first is None or first.from_core_s is None or first.points[-1][0] < 1:
            return None
        step, core_s = first.points[-1]
        return max(0.0, core_s - first.from_core_s) / step, 0.0
    work = weighted_median(slopes)
    if work <= 0:
        return None
    if first is None or first.from_core_s is None:
        return work, 0.0
    rest = statistics.median(core_s - work * step for step, core_s in first.points)
    return work, max(0.0, rest - first.from_core_s)


def threads(windows: Sequence[Window]) -> tuple[float, bool] | None:
    """How many cores can be used, and whether nothing held that back; None: too short to tell.

    Where nothing held it back, what was used in the mean under one ceiling. Else the most that was
    used in any one window, and then on to the next whole number: threads are whole.
    """
    levels: dict[float | None, list[Window]] = {}
    brief: dict[float, list[Window]] = {}
    held = 0.0
    for one in windows:
        if one.length_s < _LEAST_S:
            # A policy that acts every few seconds leaves no others: together they tell.
            brief.setdefault(math.ceil(one.ceiling_cores or 0.0), []).append(one)
            continue
        if one.contended:
            held = max(held, one.used_cores)
        else:
            ceiling = one.ceiling_cores
            level = None if ceiling is None else round(ceiling / _LEVEL_CORES) * _LEVEL_CORES
            levels.setdefault(level, []).append(one)
    free = 0.0
    for level, group in levels.items():
        length_s = math.fsum(one.length_s for one in group)
        mean = math.fsum(one.used_core_s for one in group) / length_s
        if level is None or mean < _FREE_RATIO * level:
            free = max(free, mean)
        else:
            held = max(held, *(one.used_cores for one in group))
    for group in brief.values():
        length_s = math.fsum(one.length_s for one in group)
        mean = math.fsum(one.used_core_s for one in group) / length_s
        if length_s >= _LEAST_S and mean > free * (1.0 + _WHOLE_RATIO):
            held = max(held, mean)
    if max(free, held) <= 0:
        return None
    if _snapped(free) >= _snapped(held):
        return _snapped(free), True
    return float(math.ceil(_snapped(held))), False


def _snapped(cores: float) -> float:
    near = round(cores)
    return float(near) if near and abs(cores - near) <= _WHOLE_RATIO * near else cores


def curve_points(values: Iterable[tuple[int, float]], most: int) -> tuple[tuple[int, float], ...]:
    """At most so many points through the values: medians of a step, then of three neighbours."""
    by_step: dict[int, list[float]] = {}
    for step, value in values:
        by_step.setdefault(step, []).append(value)
    steps = sorted(by_step)
    told = [statistics.median(by_step[step]) for step in steps]
    smooth = [statistics.median(told[max(0, at - 1) : at + 2]) for at in range(len(told))]
    if told:
        smooth[0], smooth[-1] = told[0], told[-1]
    last = len(steps) - 1
    kept = range(last + 1)
    if last >= most:
        kept = [round(index * last / (most - 1)) for index in range(most)]  # type: ignore[assignment]
    return tuple((steps[at], smooth[at]) for at in kept)


# ---------------------------------------------------------------------- services


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a service's time with one work a request and one rate of them."""

    at_s: float
    work_core_s: float
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Law:
    """latency = overhead + work / min(cores, threads), and how its requests come."""

    phases: tuple[Phase, ...]
    overhead_s: float
    threads: float
    noise: float
    clients: float | None
    """Of a closed loop: how many wait at once, in the mean; None: open loop."""
    known: bool
    """Whether ceilings differed enough to tell overhead and threads apart."""


def service_law(windows: Sequence[Window], cores: float) -> Law | None:
    """The law of these windows on a node of so many cores; None without a request."""
    told = [
        one
        for one in windows
        if one.count and one.mean_s >= _LEAST_LATENCY_S and one.used_core_s > 0
    ]
    if not told:
        return None
    clients = _clients(told)
    phases = _phases(told, open_loop=clients is None)
    works = [_at(phases, one.at_s).work_core_s * (clients or 1.0) for one in told]
    pairs = [(one, work) for one, work in zip(told, works, strict=True) if not one.contended]
    full = not pairs
    if full:
        pairs = list(zip(told, works, strict=True))
    used = max(one.used_cores for one in told)
    noise = 0.0
    # The waits depend on the noise, and the noise on the waits.
    for _ in range(3):
        paces = [_pace_s(one, noise) if clients is None else one.mean_s for one, _ in pairs]
        overhead_s, most, known = _overhead_and_threads(pairs, paces, used, cores, contended=full)
        noise = _noise(pairs, paces, overhead_s)
    if clients is not None and clients != 1.0:
        phases = tuple(
            Phase(one.at_s, one.work_core_s * clients, one.rate_per_s / clients) for one in phases
        )
    return Law(phases, overhead_s, most, noise, clients, known)


def _clients(told: Sequence[Window]) -> float | None:
    """How many requests are under way at once, if they follow the answers; None: they do not."""
    under_way = weighted_median((one.rate_per_s * one.mean_s, one.length_s) for one in told)
    latencies = [math.log(one.mean_s) for one in told]
    ordered = sorted(latencies)
    spread = ordered[int(0.9 * len(ordered))] - ordered[int(0.1 * len(ordered))]
    if len(told) >= 4 and spread > math.log(_SPREAD_RATIO):
        # Twice as slow is half as many where the next waits for the last, and as many otherwise.
        rates = [math.log(one.rate_per_s) for one in told]
        follows = statistics.linear_regression(latencies, rates).slope < -0.5
    else:
        follows = under_way >= 0.8
    if not follows:
        return None
    return 1.0 if 0.8 <= under_way <= 1.2 else under_way


def _phases(told: Sequence[Window], *, open_loop: bool) -> tuple[Phase, ...]:
    """The record cut where the work a request, or the rate of an open loop, changed for long."""
    cuts = {0, *_cuts(told, [math.log(max(one.work_core_s, 1e-9)) for one in told])}
    if open_loop:
        cuts |= {*_cuts(told, [math.log(one.rate_per_s) for one in told])}
    found = []
    for begin, end in itertools.pairwise([*sorted(cuts), len(told)]):
        part = told[begin:end]
        typical = weighted_median((one.work_core_s, one.count) for one in part)
        sane = [one for one in part if 0.5 <= one.work_core_s / max(typical, 1e-12) <= 2.0] or part
        count = sum(one.count for one in sane)
        work = math.fsum(one.used_core_s for one in sane) / count
        rate = sum(one.count for one in part) / math.fsum(one.length_s for one in part)
        found.append(Phase(part[0].at_s, work, rate))
    return tuple(found)


def _cuts(told: Sequence[Window], logs: Sequence[float]) -> list[int]:
    """Where the level of a series changes for long, by splitting it where that explains most."""
    cuts: list[int] = []
    splits = _split(told, logs, 0, len(told))
    while splits and len(cuts) < SHIFTS_MAX:
        _, begin, cut, end = heapq.heappop(splits)
        cuts.append(cut)
        for split in (*_split(told, logs, begin, cut), *_split(told, logs, cut, end)):
            heapq.heappush(splits, split)
    return cuts


def _split(
    told: Sequence[Window], logs: Sequence[float], begin: int, end: int
) -> list[tuple[float, int, int, int]]:
    """The best cut between two places, if there is one: less what it explains, begin, cut, end."""
    size = end - begin
    if size < 4:
        return []
    ordered = sorted(logs[begin:end])
    low, high = ordered[size // 20], ordered[-1 - size // 20]
    sums = [0.0, *itertools.accumulate(min(high, max(low, log)) for log in logs[begin:end])]
    times = [0.0, *itertools.accumulate(one.length_s for one in told[begin:end])]
    best, cut = 0.0, 0
    for at in range(1, size):
        if min(times[at], times[-1] - times[at]) < _SHIFT_LEAST_S:
            continue
        left, right = sums[at] / at, (sums[-1] - sums[at]) / (size - at)
        explained = at * (size - at) * (left - right) ** 2
        if abs(left - right) >= math.log(_SHIFT_RATIO) and explained > best:
            best, cut = explained, at
    return [(-best / size, begin, begin + cut, end)] if cut else []


def _at(phases: Sequence[Phase], at_s: float) -> Phase:
    return next(one for one in reversed(phases) if one.at_s <= at_s or one is phases[0])


def _pace_s(window: Window, noise: float) -> float:
    """The latency without the wait in the queue of an open loop: one server, Poisson arrivals."""
    low, high = 0.0, min(window.mean_s, 0.999 / window.rate_per_s)
    for _ in range(40):
        pace_s = (low + high) / 2.0
        load = pace_s * window.rate_per_s
        wait_s = load * pace_s * (1.0 + noise * noise) / (2.0 * (1.0 - load))
        low, high = (pace_s, high) if pace_s + wait_s < window.mean_s else (low, pace_s)
    return high


def _overhead_and_threads(
    pairs: Sequence[tuple[Window, float]],
    paces: Sequence[float],
    used: float,
    cores: float,
    *,
    contended: bool,
) -> tuple[float, float, bool]:
    """Overhead and threads that explain the paces best, and whether they are told apart.

    `used` are the most cores that it was seen to use.
    """
    rows = [
        (one.used_cores if contended else one.ceiling_cores or cores, work, pace_s)
        for (one, work), pace_s in zip(pairs, paces, strict=True)
    ]
    weights = [one.length_s for one, _ in pairs]
    found: list[tuple[float, float, float]] = []
    for most in _thread_counts(rows, used, cores):
        rests = [pace_s - work / min(most, ceiling) for ceiling, work, pace_s in rows]
        overhead_s = max(0.0, weighted_median(zip(rests, weights, strict=True)))
        wrong = math.fsum(
            weight * abs(rest - overhead_s) / pace_s
            for rest, weight, (_, _, pace_s) in zip(rests, weights, rows, strict=True)
        )
        found.append((wrong / math.fsum(weights), most, overhead_s))
    least = min(wrong for wrong, _, _ in found)
    good = [one for one in found if one[0] <= least * _ALMOST_BEST + _ALMOST_BEST_RATIO]
    # Threads are whole: what looks like half a thread is one that waits.
    _, most, overhead_s = min(good, key=lambda one: (one[1] != round(one[1]), one[1]))
    return overhead_s, most, not contended and good[-1][1] / most < 1.5


def _thread_counts(
    rows: Sequence[tuple[float, float, float]], used: float, cores: float
) -> list[float]:
    """Candidates, ascending: what is used at least, and what the paces without overhead say."""
    least = max(1.0, used / (1.0 + _WHOLE_RATIO))
    fastest = max(work / pace_s for _, work, pace_s in rows)
    whole = [float(count) for count in range(1, math.ceil(cores) + 1) if count >= least]
    between = [count + 0.5 for count in whole[:-1]]
    return sorted({*whole, *between, _snapped(max(least, min(fastest, cores)))})


def _noise(
    pairs: Sequence[tuple[Window, float]], paces: Sequence[float], overhead_s: float
) -> float:
    """Deviation of a request's work over its mean: of the latencies, less waits and buckets."""
    found = []
    for (one, _), pace_s in zip(pairs, paces, strict=True):
        deviation = max(0.0, one.variance_s2 - (_BUCKET_CV * one.mean_s) ** 2)
        wait_s, load = max(0.0, one.mean_s - pace_s), min(0.98, one.rate_per_s * pace_s)
        if wait_s > 1e-3 * pace_s:
            deviation -= wait_s * wait_s * (2.0 / load - 1.0)
        found.append((math.sqrt(max(0.0, deviation)) / max(pace_s - overhead_s, 1e-9), one.count))
    return min(2.0, weighted_median(found))

"""Fits of recorded jobs: work per step, start-up, threads; a service's latency law. All fits are
robust against single outliers."""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlsched.simulation.trace.observed import Attempt, Window

_PAIRS_OF = 150
"""Points of an attempt that are paired with each other at most."""
_ATTEMPTS_MAX = 10
"""Attempts that are used at most: those with the most points."""
_LEAST_S = 3.0
"""Shorter windows are not used to estimate the cores used."""
_LEAST_LATENCY_S = 1e-9
"""Lower bound of a credible latency."""
_LEVEL_CORES = 0.05
"""Ceilings that differ by less count as equal."""
_FREE_RATIO = 0.9
"""A job that uses less of its ceiling in the mean is not limited by it."""
_WHOLE_RATIO = 0.05
"""Relative tolerance for rounding threads to a whole number."""
_SHIFT_RATIO, _SHIFT_LEAST_S = 1.25, 60.0
"""A load has shifted when it differs by this factor, for at least this long."""
SHIFTS_MAX = 100
_BUCKET_CV = 0.02 / math.sqrt(12.0)
"""Coefficient of variation added by buckets 2 % wide, in quadrature."""
_ALMOST_BEST, _ALMOST_BEST_RATIO = 1.1, 0.01
"""Increase of the relative error up to which fewer threads are preferred."""
_SPREAD_RATIO = 1.2
"""Factor by which latencies must differ to distinguish an open loop from a closed one."""


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """The value below which half of the weight lies; pairs are (value, weight), at least one."""
    ordered = sorted(pairs)
    half, below = math.fsum(weight for _, weight in ordered) / 2.0, 0.0
    for value, weight in ordered:
        below += weight
        if below >= half:
            return value
    return ordered[-1][0]


# ---------------------------------------------------------------------- trainings


def step_work(attempts: Sequence[Attempt]) -> tuple[float, float] | None:
    """Core-seconds per step and before the first one; None when the steps do not suffice.

    The slope is the Theil-Sen estimate (median over pairs, weighted by distance), the intercept the
    median residual.
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
    """The number of usable cores, and whether it was unlimited; None: too little data.

    Without a limit it is the mean use under one ceiling. Otherwise it is the most used in any
    window, rounded up to the next whole number.
    """
    levels: dict[float | None, list[Window]] = {}
    brief: dict[float, list[Window]] = {}
    held = 0.0
    for one in windows:
        if one.length_s < _LEAST_S:
            # A policy that acts every few seconds leaves only short windows: merge them.
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
    """Points through the values, at most that many: medians by step, then of three neighbours."""
    by_step: dict[int, list[float]] = {}
    for step, value in values:
        by_step.setdefault(step, []).append(value)
    steps = sorted(by_step)
    medians = [statistics.median(by_step[step]) for step in steps]
    smooth = [statistics.median(medians[max(0, at - 1) : at + 2]) for at in range(len(medians))]
    if medians:
        smooth[0], smooth[-1] = medians[0], medians[-1]
    last = len(steps) - 1
    kept = range(last + 1)
    if last >= most:
        kept = [round(index * last / (most - 1)) for index in range(most)]  # type: ignore[assignment]
    return tuple((steps[at], smooth[at]) for at in kept)


# ---------------------------------------------------------------------- services


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """A period of constant work per request and request rate."""

    at_s: float
    work_core_s: float
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Law:
    """latency = overhead + work / min(cores, threads), and how requests arrive."""

    phases: tuple[LoadPhase, ...]
    overhead_s: float
    threads: float
    noise: float
    clients: float | None
    """Mean number of waiting clients of a closed loop; None: open loop."""
    known: bool
    """Whether ceilings differed enough to identify overhead and threads."""


def service_law(windows: Sequence[Window], cores: float) -> Law | None:
    """The law of these windows on a node of that many cores; None without a request."""
    windows = [
        one
        for one in windows
        if one.count and one.mean_s >= _LEAST_LATENCY_S and one.used_core_s > 0
    ]
    if not windows:
        return None
    clients = _clients(windows)
    phases = _phases(windows, open_loop=clients is None)
    works = [_at(phases, one.at_s).work_core_s * (clients or 1.0) for one in windows]
    pairs = [(one, work) for one, work in zip(windows, works, strict=True) if not one.contended]
    full = not pairs
    if full:
        pairs = list(zip(windows, works, strict=True))
    used = max(one.used_cores for one in windows)
    noise = 0.0
    # Fixed-point iteration: the waits depend on the noise, and the noise on the waits.
    for _ in range(3):
        paces = [_pace_s(one, noise) if clients is None else one.mean_s for one, _ in pairs]
        overhead_s, most, known = _overhead_and_threads(pairs, paces, used, cores, contended=full)
        noise = _noise(pairs, paces, overhead_s)
    if clients is not None and clients != 1.0:
        phases = tuple(
            LoadPhase(one.at_s, one.work_core_s * clients, one.rate_per_s / clients)
            for one in phases
        )
    return Law(phases, overhead_s, most, noise, clients, known)


def _clients(windows: Sequence[Window]) -> float | None:
    """Mean number of requests in flight, in a closed loop; None: it is open."""
    in_flight = weighted_median((one.rate_per_s * one.mean_s, one.length_s) for one in windows)
    latencies = [math.log(one.mean_s) for one in windows]
    ordered = sorted(latencies)
    spread = ordered[int(0.9 * len(ordered))] - ordered[int(0.1 * len(ordered))]
    if len(windows) >= 4 and spread > math.log(_SPREAD_RATIO):
        # In a closed loop twice the latency means half the rate, in an open one the same rate.
        rates = [math.log(one.rate_per_s) for one in windows]
        follows = statistics.linear_regression(latencies, rates).slope < -0.5
    else:
        follows = in_flight >= 0.8
    if not follows:
        return None
    return 1.0 if 0.8 <= in_flight <= 1.2 else in_flight


def _phases(windows: Sequence[Window], *, open_loop: bool) -> tuple[LoadPhase, ...]:
    """The record cut where the work per request, or an open loop's rate, changed for long."""
    cuts = {0, *_cuts(windows, [math.log(max(one.work_core_s, 1e-9)) for one in windows])}
    if open_loop:
        cuts |= {*_cuts(windows, [math.log(one.rate_per_s) for one in windows])}
    found = []
    for begin, end in itertools.pairwise([*sorted(cuts), len(windows)]):
        part = windows[begin:end]
        typical = weighted_median((one.work_core_s, one.count) for one in part)
        sane = [one for one in part if 0.5 <= one.work_core_s / max(typical, 1e-12) <= 2.0] or part
        count = sum(one.count for one in sane)
        work = math.fsum(one.used_core_s for one in sane) / count
        rate = sum(one.count for one in part) / math.fsum(one.length_s for one in part)
        found.append(LoadPhase(part[0].at_s, work, rate))
    return tuple(found)


def _cuts(windows: Sequence[Window], logs: Sequence[float]) -> list[int]:
    """Change points of a series: repeatedly split where a split explains most."""
    cuts: list[int] = []
    splits = _split(windows, logs, 0, len(windows))
    while splits and len(cuts) < SHIFTS_MAX:
        _, begin, cut, end = heapq.heappop(splits)
        cuts.append(cut)
        for split in (*_split(windows, logs, begin, cut), *_split(windows, logs, cut, end)):
            heapq.heappush(splits, split)
    return cuts


def _split(
    windows: Sequence[Window], logs: Sequence[float], begin: int, end: int
) -> list[tuple[float, int, int, int]]:
    """The best split between two indices, if any: negative gain, begin, cut, end."""
    size = end - begin
    if size < 4:
        return []
    ordered = sorted(logs[begin:end])
    low, high = ordered[size // 20], ordered[-1 - size // 20]
    sums = [0.0, *itertools.accumulate(min(high, max(low, log)) for log in logs[begin:end])]
    times = [0.0, *itertools.accumulate(one.length_s for one in windows[begin:end])]
    best, cut = 0.0, 0
    for at in range(1, size):
        if min(times[at], times[-1] - times[at]) < _SHIFT_LEAST_S:
            continue
        left, right = sums[at] / at, (sums[-1] - sums[at]) / (size - at)
        explained = at * (size - at) * (left - right) ** 2
        if abs(left - right) >= math.log(_SHIFT_RATIO) and explained > best:
            best, cut = explained, at
    return [(-best / size, begin, begin + cut, end)] if cut else []


def _at(phases: Sequence[LoadPhase], at_s: float) -> LoadPhase:
    return next(one for one in reversed(phases) if one.at_s <= at_s or one is phases[0])


def _pace_s(window: Window, noise: float) -> float:
    """The latency without the queue's wait, in an open loop: one server, Poisson arrivals."""
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
    """Overhead and threads that fit the paces best, and whether they are identified. `used` is the
    maximum of cores used."""
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
    # Threads are whole numbers: half a thread is one that waits.
    _, most, overhead_s = min(good, key=lambda one: (one[1] != round(one[1]), one[1]))
    return overhead_s, most, not contended and good[-1][1] / most < 1.5


def _thread_counts(
    rows: Sequence[tuple[float, float, float]], used: float, cores: float
) -> list[float]:
    """Candidates, ascending: from the cores used, and from the paces without overhead."""
    least = max(1.0, used / (1.0 + _WHOLE_RATIO))
    fastest = max(work / pace_s for _, work, pace_s in rows)
    whole = [float(count) for count in range(1, math.ceil(cores) + 1) if count >= least]
    between = [count + 0.5 for count in whole[:-1]]
    return sorted({*whole, *between, _snapped(max(least, min(fastest, cores)))})


def _noise(
    pairs: Sequence[tuple[Window, float]], paces: Sequence[float], overhead_s: float
) -> float:
    """Deviation of a request's work over its mean: the latencies' without waits and buckets."""
    found = []
    for (one, _), pace_s in zip(pairs, paces, strict=True):
        deviation = max(0.0, one.variance_s2 - (_BUCKET_CV * one.mean_s) ** 2)
        wait_s, load = max(0.0, one.mean_s - pace_s), min(0.98, one.rate_per_s * pace_s)
        if wait_s > 1e-3 * pace_s:
            deviation -= wait_s * wait_s * (2.0 / load - 1.0)
        found.append((math.sqrt(max(0.0, deviation)) / max(pace_s - overhead_s, 1e-9), one.count))
    return min(2.0, weighted_median(found))

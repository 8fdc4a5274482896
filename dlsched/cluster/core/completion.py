"""Fluid forecast of one node: when each of its jobs will have done its work.

CPU time is a fluid that the node's own policy divides again at each event, which is the end of a
job or the start of one that is moving in. Fair sharing is processor sharing with ceilings
(Kleinrock 1976; weighted water-filling as in `dlsched.policies.fair_share`). Shortest first is
preemptive SRPT (Schrage 1968), with the longest path first (Graham 1969) where a job would
otherwise run alone at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlsched.cluster.core.snapshot import Sharing

CRITICAL_RATIO = 0.8
"""Under `Sharing.SHORTEST` a job goes first if its shortest possible time is above this part of the
node's rest, the time in which all cores together would do all work."""

_ROUNDING_S = 1e-9


class Load(NamedTuple):
    """A job as the forecast of its node needs it."""

    left_core_s: float
    """On this node: with the node's speed."""
    parallel_cores: float
    """The most that it can use."""
    weight: float = 1.0
    begins_s: float = 0.0
    """Seconds until it runs: the rest of its pause, or of the pull of its image."""


class Phase(NamedTuple):
    """A time without events."""

    begins_s: float
    ends_s: float
    granted: Sequence[tuple[int, float]]
    """Index of a load, and its cores."""


def completions(cores: float, sharing: Sharing, loads: Sequence[Load]) -> list[float]:
    """Seconds from now until each of the loads is done, in their order."""
    ends = [load.begins_s for load in loads]
    for _, ends_s, granted in phases(cores, sharing, loads):
        for index, _ in granted:
            ends[index] = ends_s
    return ends


def phases(cores: float, sharing: Sharing, loads: Sequence[Load]) -> Iterator[Phase]:
    """The phases until all work is done. `cores` must be above 0."""
    left = [load.left_core_s for load in loads]
    divide = _fair if sharing is Sharing.FAIR else _shortest
    # In the order of water-filling: the job that reaches its ceiling first comes first.
    order = [index for index in range(len(loads)) if left[index] > 0]
    order.sort(key=lambda index: loads[index].parallel_cores / loads[index].weight)
    starts = sorted({loads[i].begins_s for i in order if loads[i].begins_s > 0}, reverse=True)
    now_s = 0.0
    active = [i for i in order if loads[i].begins_s <= 0]
    while active or starts:
        granted = divide(cores, loads, left, active)
        lasts_s = min([left[i] / rate for i, rate in granted], default=math.inf)
        until_s = starts[-1] if starts else math.inf
        begins = now_s + lasts_s >= until_s
        ends_s = until_s if begins else now_s + lasts_s
        if granted:
            yield Phase(now_s, ends_s, granted)
        if begins:
            lasts_s = until_s - now_s
            starts.pop()
        for index, rate in granted:
            done = left[index] <= rate * (lasts_s + _ROUNDING_S)
            left[index] = 0.0 if done else left[index] - rate * lasts_s
        now_s = ends_s
        if begins:
            active = [i for i in order if left[i] > 0 and loads[i].begins_s <= now_s]
        else:
            active = [i for i in active if left[i] > 0]


def _fair(
    cores: float, loads: Sequence[Load], _left: Sequence[float], active: Sequence[int]
) -> list[tuple[int, float]]:
    """`water_fill` without floors, in one pass, as `active` is in the order of its bends."""
    weight = math.fsum(loads[i].weight for i in active)
    granted = []
    for i in active:
        _, ceiling, own, _ = loads[i]
        rate = min(ceiling, cores * own / weight if weight > own else cores)
        granted.append((i, rate))
        cores -= rate
        weight -= own
    return [(i, rate) for i, rate in granted if rate > 0]


def _shortest(
    cores: float, loads: Sequence[Load], left: Sequence[float], active: Sequence[int]
) -> list[tuple[int, float]]:
    """Critical jobs first, the longest of them before the others; then the least work first."""
    limit_s = CRITICAL_RATIO * math.fsum([left[i] for i in active]) / cores
    ranked = []
    for i in active:
        work_core_s, (_, most, _, _) = left[i], loads[i]
        least_s = work_core_s / most
        ranked.append((0, -least_s, i, most) if least_s > limit_s else (1, work_core_s, i, most))
    ranked.sort()
    granted = []
    for _, _, i, most in ranked:
        rate = most if most < cores else cores
        granted.append((i, rate))
        cores -= rate
        if cores <= 0:
            break
    return granted

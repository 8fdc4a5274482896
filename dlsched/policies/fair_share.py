"""Capacity divided by weight: the fair share that policies and guards fall back on.

Owns water-filling. It must not look at progress or usage: a fair share is earned by being there.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlsched.model.state import JobView


@dataclass(frozen=True, slots=True)
class Claim:
    """What one job may get of a division: between floor and ceiling, by weight in between."""

    weight: float
    floor_cores: float
    ceiling_cores: float


def fair_shares(jobs: Iterable[JobView], capacity_cores: float) -> dict[str, float]:
    """What each of these jobs gets of the capacity by weight, in cores."""
    return water_fill(capacity_cores, {job.name: claim(job, capacity_cores) for job in jobs})


def claim(job: JobView, capacity_cores: float) -> Claim:
    """A job's claim by its spec; without a ceiling it may have all of the capacity."""
    bounds = job.spec.bounds
    ceiling = capacity_cores if bounds.ceiling_cores is None else bounds.ceiling_cores
    ceiling = max(min(ceiling, capacity_cores), bounds.floor_cores)
    return Claim(job.spec.weight, bounds.floor_cores, ceiling)


def water_fill(capacity_cores: float, claims: Mapping[str, Claim]) -> dict[str, float]:
    """Divide by weight like water: everybody at one level per weight, save who is at a bound.

    The sum is the capacity where floors and ceilings allow it. Floors hold even when they do not
    fit (admission keeps that from happening), ceilings even when capacity is left.
    """

    def at(level: float) -> dict[str, float]:
        return {
            name: min(max(one.weight * level, one.floor_cores), one.ceiling_cores)
            for name, one in claims.items()
        }

    def total(level: float) -> float:
        return math.fsum(at(level).values())

    # The total grows with the level and bends only where a job meets one of its bounds.
    bends = sorted(
        {0.0}
        | {one.floor_cores / one.weight for one in claims.values()}
        | {one.ceiling_cores / one.weight for one in claims.values()}
    )
    index = bisect_left(bends, capacity_cores, key=total)
    if index == 0:
        return at(0.0)
    if index == len(bends):
        return at(bends[-1])
    low, high = bends[index - 1], bends[index]
    part = (capacity_cores - total(low)) / (total(high) - total(low))
    return at(low + part * (high - low))

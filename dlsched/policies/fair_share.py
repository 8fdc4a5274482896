"""Weighted fair shares by water-filling, used by policies and guards. Progress and usage do not
count."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlsched.model.state import JobView


@dataclass(frozen=True, slots=True)
class Claim:
    """What one job may get in a division: by weight, between floor and ceiling."""

    weight: float
    floor_cores: float
    ceiling_cores: float


def fair_shares(jobs: Iterable[JobView], capacity_cores: float) -> dict[str, float]:
    """The fair share of each of these jobs, in cores."""
    return water_fill(capacity_cores, {job.name: claim(job, capacity_cores) for job in jobs})


def claim(job: JobView, capacity_cores: float) -> Claim:
    """The claim in the job's spec; without a ceiling it may get the whole capacity."""
    bounds = job.spec.bounds
    ceiling = capacity_cores if bounds.ceiling_cores is None else bounds.ceiling_cores
    ceiling = max(min(ceiling, capacity_cores), bounds.floor_cores)
    return Claim(job.spec.weight, bounds.floor_cores, ceiling)


def water_fill(capacity_cores: float, claims: Mapping[str, Claim]) -> dict[str, float]:
    """Weighted water-filling: all jobs get the same per weight, except those at a floor or ceiling.

    The sum is the capacity where floors and ceilings allow it. Floors hold even if they do not fit
    (admission prevents that), ceilings even if capacity is left.
    """

    def at(level: float) -> dict[str, float]:
        return {
            name: min(max(one.weight * level, one.floor_cores), one.ceiling_cores)
            for name, one in claims.items()
        }

    def total(level: float) -> float:
        return math.fsum(at(level).values())

    # The total is piecewise linear in the level, with bends where a job reaches a bound.
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

"""What somebody who knows all work beforehand could reach: the measure of every policy.

Owns the bounds. They are optimistic where they cannot be exact: work of others on the host, the
time that containers take to start, and jobs of the other kind cost a clairvoyant nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """Cores that satisfy one service from one time to another; infinite: none would."""

    from_s: float
    to_s: float
    cores: float


@dataclass(frozen=True, slots=True)
class Work:
    """One training: when it comes, how much it computes to each tier and in all, how widely."""

    arrives_s: float
    total_core_s: float
    threads: float
    tier_core_s: tuple[float | None, float | None] = (None, None)


def satisfied_job_s(demands: Iterable[Demand], cores: float) -> float:
    """The most job-seconds in which a service is satisfied: at any time, the cheapest first."""
    wanted = [one for one in demands if one.cores <= cores and one.to_s > one.from_s]
    times = sorted({one.from_s for one in wanted} | {one.to_s for one in wanted})
    total = 0.0
    for begin_s, end_s in itertools.pairwise(times):
        present = sorted(one.cores for one in wanted if one.from_s <= begin_s < one.to_s)
        left = cores
        for cost in present:
            left -= cost
            if left < -1e-9:
                break
            total += end_s - begin_s
    return total


def makespan_s(jobs: Sequence[Work], cores: float) -> float:
    """No schedule is shorter, from the first arrival to the last end.

    Neither can one job run wider than it is, nor the work that comes late begin before.
    """
    first_s = min(job.arrives_s for job in jobs)
    single = max(job.arrives_s + job.total_core_s / min(job.threads, cores) for job in jobs)
    together = max(
        late.arrives_s
        + math.fsum(job.total_core_s for job in jobs if job.arrives_s >= late.arrives_s) / cores
        for late in jobs
    )
    return max(single, together) - first_s


def mean_s(jobs: Sequence[Work], cores: float, tier: int | None) -> float | None:
    """The least mean time from arrival to a tier (0, 1), or to the end (None).

    Of the jobs that ever reach it; None when none does. Best of the orders tried: least work left
    first, shortest time left first, and one in between.
    """
    goals = [
        (job, needed)
        for job in jobs
        if (needed := job.total_core_s if tier is None else job.tier_core_s[tier]) is not None
    ]
    if not goals:
        return None
    return min(_mean_under(power, goals, cores) for power in _WIDTH_POWERS)


_WIDTH_POWERS = (0.0, 0.5, 1.0)
"""How much a job's width counts for it, in the orders tried."""


def _mean_under(power: float, goals: Sequence[tuple[Work, float]], cores: float) -> float:
    """Mean time when those first in order get all that they can use, at any moment."""
    left = [needed for _, needed in goals]
    coming = sorted(range(len(goals)), key=lambda one: goals[one][0].arrives_s, reverse=True)
    present: list[int] = []
    now_s, total_s = 0.0, 0.0
    while coming or present:
        while coming and goals[coming[-1]][0].arrives_s <= now_s:
            present.append(coming.pop())
        next_s = goals[coming[-1]][0].arrives_s if coming else math.inf
        present.sort(key=lambda one: (left[one] / goals[one][0].threads ** power, one))
        free, rates = cores, {}
        for one in present:
            rates[one] = min(goals[one][0].threads, free)
            free -= rates[one]
            if rates[one] > 0:
                next_s = min(next_s, now_s + left[one] / rates[one])
        for one, rate in rates.items():
            left[one] -= rate * (next_s - now_s)
        now_s = next_s
        for one in [one for one in present if left[one] <= 1e-9 * goals[one][1] + 1e-12]:
            present.remove(one)
            total_s += now_s - goals[one][0].arrives_s
    return total_s / len(goals)

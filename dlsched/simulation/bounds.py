"""Bounds of what a clairvoyant scheduler could reach, by which every policy is measured.

They are optimistic: other work on the host, start-up times, and jobs of the other kind cost it
nothing. No schedule is better, but for the mean times, which are the best of many tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from dlsched.model.spec import Tier


@dataclass(frozen=True, slots=True)
class Demand:
    """Cores that satisfy one service during some time; infinite: no number does."""

    from_s: float
    to_s: float
    cores: float


@dataclass(frozen=True, slots=True)
class Work:
    """One training: its arrival, its work to each tier and in all, and its threads."""

    arrives_s: float
    total_core_s: float
    threads: float
    tier_core_s: Mapping[Tier, float | None] = field(default_factory=dict)
    there_s: float = math.inf
    """Time that it has in the trace."""


@dataclass(frozen=True, slots=True)
class Period:
    """The nodes that are there from a time on, until the next period."""

    from_s: float
    nodes: tuple[tuple[float, float], ...]
    """Speed and cores of each, the fastest first. Speed is the work done per core-second."""

    def alone(self, threads: float) -> float:
        """The most work per second of one training, which runs on one node at a time."""
        return max((speed * min(threads, cores) for speed, cores in self.nodes), default=0.0)

    @property
    def together(self) -> float:
        """The work per second of all nodes."""
        return math.fsum(speed * cores for speed, cores in self.nodes)


Supply = Sequence[Period]
"""What one node or several can do over time, in order."""


def one_node(cores: float) -> Supply:
    return (Period(-math.inf, ((1.0, cores),)),)


def satisfied_job_s(demands: Iterable[Demand], cores: float, deferred_s: float = 0.0) -> float:
    """The most job-seconds in which services are satisfied: at any time, the cheapest first.

    `deferred_s` are added for services whose requests queue: work may lag that long, and at the end
    it need not be done.
    """
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
    return min(total + deferred_s, math.fsum(one.to_s - one.from_s for one in wanted))


def makespan_s(jobs: Sequence[Work], supply: Supply) -> float:
    """A lower bound of the time from the first arrival to the last end."""
    first_s = min(job.arrives_s for job in jobs)
    single = max(
        _done_s(job.arrives_s, job.total_core_s, supply, partial(Period.alone, threads=job.threads))
        for job in jobs
    )
    together = max(
        _done_s(
            late.arrives_s,
            math.fsum(job.total_core_s for job in jobs if job.arrives_s >= late.arrives_s),
            supply,
            lambda period: period.together,
        )
        for late in jobs
    )
    return max(single, together) - first_s


def _done_s(begin_s: float, work: float, supply: Supply, rate: Callable[[Period], float]) -> float:
    """When work is done that begins then, at the rate of each period."""
    ends_s = [*(period.from_s for period in supply[1:]), math.inf]
    for period, end_s in zip(supply, ends_s, strict=True):
        from_s, per_s = max(begin_s, period.from_s), rate(period)
        if per_s <= 0.0 or end_s <= from_s:
            continue
        if work <= per_s * (end_s - from_s):
            return from_s + work / per_s
        work -= per_s * (end_s - from_s)
    return math.inf


@dataclass(frozen=True, slots=True)
class Goal:
    """The work that one job has to do for a goal, and the time that it has."""

    arrives_s: float
    needed_core_s: float
    threads: float
    there_s: float = math.inf
    """A goal not reached by then counts with this time, as in the metrics."""

    def alone_s(self, cores: float) -> float:
        """The time alone on the node, a lower bound."""
        return min(self.there_s, self.needed_core_s / min(self.threads, cores))


def goals(jobs: Sequence[Work], tier: Tier | None) -> dict[int, Goal]:
    """By index, the jobs whose work leads to a tier, or to the end (None)."""
    return {
        index: Goal(job.arrives_s, needed, job.threads, job.there_s)
        for index, job in enumerate(jobs)
        if (needed := job.total_core_s if tier is None else job.tier_core_s.get(tier)) is not None
    }


def mean_s(wanted: Sequence[Goal], supply: Supply) -> float:
    """The least mean time from arrival to these goals, by the best of the orders tried.

    At any moment the first in order get all that they can use, of several nodes the fastest cores
    first, and one training may have cores of several. Orders are by work left, by
    remaining critical path, by these with few threads first, and combinations; for few jobs,
    exchanges of neighbours improve them. Optimality is not proven.
    """
    best_s, order = min(_under(_by_work_left(power), wanted, supply) for power in _WIDTH_POWERS)
    tries = int(_TRIES / len(wanted) ** 2)
    improved = True
    while improved and tries > 0:
        improved = False
        for place in range(len(order) - 1):
            tries -= 1
            other = (*order[:place], order[place + 1], order[place], *order[place + 2 :])
            other_s, _ = _under(_by_rank(other), wanted, supply)
            if other_s < best_s * (1.0 - 1e-12):
                best_s, order, improved = other_s, other, True
    return best_s


def least_s(wanted: Sequence[Goal], cores: float, count: int) -> float:
    """A lower bound of the time in which `count` of the goals can all be reached. Each takes at
    least its time alone, and together they take at least the work of the smallest."""
    alone_s = sorted(goal.alone_s(cores) for goal in wanted)[count - 1]
    arrivals_s = [goal.arrives_s for goal in wanted]
    work_core_s = math.fsum(sorted(goal.needed_core_s for goal in wanted)[:count])
    together_s = work_core_s / cores - (max(arrivals_s) - min(arrivals_s))
    # From `there_s` on a goal may count without being reached.
    return max(alone_s, min(together_s, *(goal.there_s for goal in wanted)))


Rule = Callable[[int, Goal, float], float]
"""Sort key of a goal (its index, itself, its work left in core-seconds): the least come first."""

_WIDTH_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0, -1.0, -4.0)
"""Exponents of a job's number of threads in the orders tried."""

_TRIES = 300_000
"""Budget of exchanges; with n jobs each costs about n squared."""


def _by_work_left(power: float) -> Rule:
    return lambda _index, goal, left: left / goal.threads**power


def _by_rank(order: Sequence[int]) -> Rule:
    rank = {index: float(place) for place, index in enumerate(order)}
    return lambda index, _goal, _left: rank[index]


def _under(rule: Rule, wanted: Sequence[Goal], supply: Supply) -> tuple[float, tuple[int, ...]]:
    """The mean time and the order of completion if the first by that rule get all they can use."""
    left = [goal.needed_core_s for goal in wanted]
    coming = sorted(range(len(wanted)), key=lambda one: wanted[one].arrives_s, reverse=True)
    present: list[int] = []
    there: list[int] = []
    times = [0.0] * len(wanted)
    ahead = list(reversed(supply))
    nodes: tuple[tuple[float, float], ...] = ()
    now_s = 0.0
    while coming or present:
        while coming and wanted[coming[-1]].arrives_s <= now_s:
            present.append(coming.pop())
        next_s = wanted[coming[-1]].arrives_s if coming else math.inf
        while ahead and ahead[-1].from_s <= now_s:
            nodes = ahead.pop().nodes
        if ahead:
            next_s = min(next_s, ahead[-1].from_s)
        present.sort(key=lambda one: (rule(one, wanted[one], left[one]), one))
        free, rates = list(reversed(nodes)), {}
        for one in present:
            rate = _take(free, wanted[one].threads)
            if rate > 0:
                rates[one] = rate
                next_s = min(next_s, now_s + left[one] / rate)
            next_s = min(next_s, _leaves_s(wanted[one]))
        for one, rate in rates.items():
            left[one] -= rate * (next_s - now_s)
        now_s = next_s
        for one in list(present):
            goal = wanted[one]
            if left[one] <= 1e-9 * goal.needed_core_s + 1e-12 or _leaves_s(goal) <= now_s:
                present.remove(one)
                there.append(one)
                times[one] = min(now_s - goal.arrives_s, goal.there_s)
    return math.fsum(times) / len(wanted), tuple(there)


def _take(free: list[tuple[float, float]], threads: float) -> float:
    """The work per second of so many cores, as far as they are free: of the last, the fastest."""
    rate = 0.0
    while free and threads > 0.0:
        speed, cores = free.pop()
        taken = min(threads, cores)
        rate += speed * taken
        threads -= taken
        if cores > taken:
            free.append((speed, cores - taken))
    return rate


def _leaves_s(goal: Goal) -> float:
    return goal.arrives_s + goal.there_s

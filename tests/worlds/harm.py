"""Harm: a service slower than under plain Docker, judged by its played requests.

Owns the judgement of services in a pair of runs with the same seed. It must not run them, nor
look at what was reported.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from dlsched.model.spec import LatencyTarget
from dlsched.simulation.node.played import PlayedService, mean_or_quantile
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.node.world import Computation

SLOWER_RATIO, SLOWER_S = 1.1, 0.002
"""Slower than by this factor and so much more is harm; less is not felt."""
NEAR_RATIO = 0.8
"""Fraction of the target: a service below it is not harmed, however much slower it has become."""
FULL_RATIO = 0.85
"""Of the node: services that need more in any second may be in each other's way."""
P95_REQUESTS = 1000
"""A p95 of fewer requests is chance."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the requests of one service took, in seconds."""

    mean_s: float
    p95_s: float | None
    """None: of too few requests."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One service in both runs."""

    name: str
    weight: float
    target: LatencyTarget
    plain: PlayedService
    own: PlayedService


def pairs_of(
    trace: Trace, plain: Mapping[str, Computation], own: Mapping[str, Computation]
) -> list[Pair]:
    """The played services of two runs of that trace."""
    found = []
    for job in trace.jobs:
        before, after = plain[job.name], own.get(job.name)
        if isinstance(before, PlayedService) and isinstance(after, PlayedService):
            found.append(Pair(job.name, job.spec.weight, job.spec.target, before, after))
    return found


def served(service: PlayedService) -> Served:
    """All its requests, those that wait at the end too."""
    took = _took(service)
    if not took:
        return Served(math.inf, None)
    p95_s = mean_or_quantile(took, 0.95) if len(took) >= P95_REQUESTS else None
    return Served(statistics.fmean(took), p95_s)


def harmed(plain: Served, own: Served, target_s: float | None) -> bool:
    """Whether that service is worse off for the policy."""
    near_s = 0.0 if target_s is None else NEAR_RATIO * target_s
    pairs = [(plain.mean_s, own.mean_s)]
    if plain.p95_s is not None and own.p95_s is not None:
        pairs.append((plain.p95_s, own.p95_s))
    return any(
        after_s > SLOWER_RATIO * before_s + SLOWER_S and after_s > near_s
        for before_s, after_s in pairs
    )


def busiest_ratio(trace: Trace, loads: Mapping[str, Computation]) -> float:
    """Part of the node that the requests of played services need which came in any one second.

    A node whose cores are slower while all are busy has no more than these slower cores.
    """
    seconds: dict[int, float] = {}
    for job in trace.jobs:
        one = loads[job.name]
        if isinstance(one, PlayedService):
            for came_s in one.came_s:
                at = int(came_s)
                seconds[at] = seconds.get(at, 0.0) + one.load.work_core_s
    return max(seconds.values(), default=0.0) / (trace.node.cores * trace.full_speed)


def worse_jobs(
    trace: Trace, plain: Mapping[str, Computation], own: Mapping[str, Computation]
) -> int:
    """How many services are worse off than under plain Docker.

    Where the services fit the node in every second: those that are harmed. Elsewhere: those that
    meet their targets under plain Docker and miss them now, for whom no other one of at least
    their weight is met that was not.
    """
    pairs = pairs_of(trace, plain, own)
    if busiest_ratio(trace, plain) <= FULL_RATIO:
        return sum(harmed(served(one.plain), served(one.own), one.target.seconds) for one in pairs)
    changed = [
        (one.weight, _meets(one.plain, one.target), _meets(one.own, one.target)) for one in pairs
    ]
    won = sorted(weight for weight, was, now in changed if now and not was)
    lost = 0
    for weight in sorted((weight for weight, was, now in changed if was and not now), reverse=True):
        if won and won[-1] >= weight:
            won.pop()
        else:
            lost += 1
    return lost


def _took(service: PlayedService) -> list[float]:
    """All its requests, in seconds, those that wait at the end too."""
    return [one for stretch in service.stretches().values() for one in stretch]


def _meets(service: PlayedService, target: LatencyTarget) -> bool:
    took = _took(service)
    return bool(took) and mean_or_quantile(took, target.quantile) <= target.seconds

"""Harm: a service slower than under plain Docker, judged by its played requests.

Owns the judgement of one service in a pair of runs with the same seed. It must not run them, nor
look at what was reported.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from dlsched.simulation.node.played import PlayedService, mean_or_quantile

SLOWER_RATIO, SLOWER_S = 1.1, 0.002
"""Slower than by this factor and so much more is harm; less is not felt."""
NEAR_RATIO = 0.8
"""Fraction of the target: a service below it is not harmed, however much slower it has become."""
P95_REQUESTS = 1000
"""A p95 of fewer requests is chance."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the requests of one service took, in seconds."""

    mean_s: float
    p95_s: float | None
    """None: of too few requests."""


def served(service: PlayedService) -> Served:
    """All its requests, those that wait at the end too."""
    took = [one for stretch in service.stretches().values() for one in stretch]
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

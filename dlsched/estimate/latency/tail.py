"""The ratio of a latency quantile to the mean, learned by stochastic approximation (see `law`)."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

from dlsched.model.facts import LatencySketch
from dlsched.report.buckets import GROWTH, UNIT_S

LOG_GROWTH = math.log(GROWTH)


def tail_step(
    sketch: LatencySketch, predicted_s: float, spread: float, tail_log: float, quantile: float
) -> float:
    """The Robbins-Monro step of the quantile factor's logarithm, before the gain. Where only bounds
    of latencies are known, the smallest step that they allow."""
    z, density = normal_quantile(quantile)
    log_s = math.log(predicted_s / UNIT_S) + z * spread - spread * spread / 2.0 + tail_log
    edge = log_s / LOG_GROWTH
    beyond = 0.0
    for index, many in reversed(sketch.buckets):
        if index <= edge:
            break
        beyond += many * min(1.0, index - edge)
    edge_s, perhaps = UNIT_S * math.exp(log_s), beyond
    for lowest_s, highest_s, many in sketch.spans:
        beyond += many if lowest_s >= edge_s else 0
        perhaps += many if highest_s > edge_s else 0
    fraction = min(max(1.0 - quantile, beyond / sketch.count), perhaps / sketch.count, 1.0)
    return (fraction - (1.0 - quantile)) * spread / density


@lru_cache(maxsize=64)
def normal_quantile(quantile: float) -> tuple[float, float]:
    """The quantile of the standard normal, and the density there."""
    normal = NormalDist()
    z = normal.inv_cdf(min(max(quantile, 1e-4), 1.0 - 1e-4))
    return z, normal.pdf(z)

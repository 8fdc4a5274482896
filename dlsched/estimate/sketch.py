"""Arithmetic of latency sketches: merge, quantile within 1 %, coefficient of variation."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dlsched.model.facts import LatencySketch
from dlsched.report.buckets import bucket_index, bucket_value_s


def from_latencies(seconds: Iterable[float], errors: int = 0) -> LatencySketch:
    """The sketch of these latencies in seconds; ValueError if one is negative or not finite."""
    latencies = tuple(seconds)
    counts: dict[int, int] = {}
    for each in latencies:
        index = bucket_index(each)
        counts[index] = counts.get(index, 0) + 1
    return LatencySketch(
        count=len(latencies),
        sum_s=math.fsum(latencies),
        buckets=tuple(sorted(counts.items())),
        errors=errors,
    )


def merge(*sketches: LatencySketch) -> LatencySketch:
    """The sketch of all requests of these sketches; without any, the empty sketch."""
    counts: dict[int, int] = {}
    for sketch in sketches:
        for index, count in sketch.buckets:
            counts[index] = counts.get(index, 0) + count
    return LatencySketch(
        count=sum(sketch.count for sketch in sketches),
        sum_s=math.fsum(sketch.sum_s for sketch in sketches),
        buckets=tuple(sorted(counts.items())),
        errors=sum(sketch.errors for sketch in sketches),
    )


def quantile_s(sketch: LatencySketch, quantile: float) -> float | None:
    """The latency quantile in seconds (nearest rank), within 1 %; at least about a microsecond.
    None without a counted bucket; ValueError if `quantile` is not above 0 and at most 1."""
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"quantile {quantile!r}: above 0, at most 1")
    total = sum([count for _, count in sketch.buckets])
    # Slightly less, so that 0.95 of 20 is the 19th even if the product rounds up.
    rank = max(1, math.ceil(quantile * total * (1.0 - 1e-12)))
    below = 0
    for index, count in sketch.buckets:
        below += count
        if below >= rank:
            return bucket_value_s(index)
    return None


def measured_s(sketch: LatencySketch, quantile: float | None) -> float | None:
    """The latency compared with a target, in seconds: the mean (None) or that quantile."""
    return sketch.mean_s if quantile is None else quantile_s(sketch, quantile)


def cv(sketch: LatencySketch) -> float | None:
    """Coefficient of variation (standard deviation over mean) from the buckets; None without any.
    Variation within one bucket reads as 0."""
    total = sum([count for _, count in sketch.buckets])
    if not total:
        return None
    values = [(bucket_value_s(index), count) for index, count in sketch.buckets]
    mean_s = math.fsum([value * count for value, count in values]) / total
    variance = math.fsum([count * (value - mean_s) ** 2 for value, count in values]) / total
    return math.sqrt(variance) / mean_s

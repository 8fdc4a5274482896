"""Arithmetic of latency sketches: merge, bounds of a quantile, coefficient of variation.

A quantile of requests that are counted in wide buckets is known within bounds only. Such a latency
is on one side of a target, or it cannot be judged; no point between the bounds is ever taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from dlsched.estimate.sliding import SlidingSketch
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import LatencyTarget
from dlsched.report.buckets import LONGEST_S, bucket_index, bucket_value_s

_EXACT_RATIO = 1.02
"""Highest over lowest of a latency that counts as one number: twice a bucket's own error of 1 %."""
_MISSED_RATIO = 0.01
"""When a larger part of the answers may be missing, the mean is not known: it would be off by more
than a bucket's own error if these took twice as long."""
_ABOVE = 1.0 + 1e-6
"""A request is above the lower bound of its bucket, by any amount; this much counts as above."""


class Bounds(NamedTuple):
    """A latency in seconds above the first and at most the second, or both where they are equal."""

    lowest_s: float
    highest_s: float

    @property
    def is_exact(self) -> bool:
        """Whether the two are one number within the buckets' own error."""
        return self.highest_s <= _EXACT_RATIO * self.lowest_s

    @property
    def most_s(self) -> float | None:
        """`highest_s`; None where nothing bounds it."""
        return None if self.highest_s >= LONGEST_S else self.highest_s

    def against(self, asked_s: float) -> float | None:
        """The bound next to that latency, on the side where the measured one is for certain; None:
        it is between the bounds."""
        if self.is_exact:
            return self.highest_s
        if self.lowest_s >= asked_s:
            return self.lowest_s * _ABOVE
        return self.highest_s if self.highest_s <= asked_s else None


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
    whole = SlidingSketch()
    for sketch in sketches:
        whole.add(sketch)
    return whole.total()


def quantile_bounds(
    sketch: LatencySketch, quantile: float, *, by_sum: bool = True
) -> Bounds | None:
    """Between which latencies the quantile (nearest rank) lies: of requests in buckets within 1 %,
    at least about a microsecond; of others as tight as spans and, with `by_sum`, their sum allow.
    What may be missing may be the quickest or the slowest. None without a request; ValueError if
    `quantile` is not above 0 and at most 1."""
    if not 0.0 < quantile <= 1.0:
        raise ValueError(f"quantile {quantile!r}: above 0, at most 1")
    counted = sum([count for _, count in sketch.buckets])
    unplaced = sketch.count - counted - sum([count for _, _, count in sketch.spans])
    total = counted if not sketch.spans and unplaced <= 0 else sketch.count
    if not total:
        return None
    total += sketch.missed
    # Slightly less, so that 0.95 of 20 is the 19th even if the product rounds up.
    rank = max(1, math.ceil(quantile * total * (1.0 - 1e-12)))
    if total == counted:
        below = 0
        for index, count in sketch.buckets:
            below += count
            if below >= rank:
                return Bounds(bucket_value_s(index), bucket_value_s(index))
    exact = [(bucket_value_s(index), count) for index, count in sketch.buckets]
    spans = [*sketch.spans, (0.0, LONGEST_S, max(unplaced, 0) + sketch.missed)]
    lowest_s, below_s = _at_rank(exact + [(low, count) for low, _, count in spans], rank)
    highest_s, _ = _at_rank(exact + [(high, count) for _, high, count in spans], rank)
    if not by_sum or sketch.missed:  # the sum has nothing of those that may be missing
        return Bounds(lowest_s, highest_s)
    # Those from the quantile on are at least as slow as it, and all others as their lowest.
    of_sum_s = (sketch.sum_s + sketch.sum_error_s - below_s) / (total - rank + 1)
    return Bounds(lowest_s, max(lowest_s, min(highest_s, of_sum_s)))


def _at_rank(values: list[tuple[float, int]], rank: int) -> tuple[float, float]:
    """The value at that rank, and the sum of all below it."""
    below, sum_below = 0, 0.0
    for value, count in sorted(values):
        if below + count >= rank:
            return value, sum_below + (rank - 1 - below) * value
        below += count
        sum_below += count * value
    raise ValueError(f"rank {rank} of {below}")


def measured_s(sketch: LatencySketch, quantile: float | None) -> float | None:
    """The mean (None) or that quantile in seconds, where it is known as one number; ValueError as
    of `quantile_bounds`."""
    bounds = bounds_of(sketch, quantile)
    return bounds.highest_s if bounds is not None and bounds.is_exact else None


def bounds_of(sketch: LatencySketch, quantile: float | None) -> Bounds | None:
    """Between which latencies the mean (None) or that quantile lies; None without a request. The
    mean is as exact as the sum, unless so much may be missing that nothing bounds it."""
    if quantile is not None:
        return quantile_bounds(sketch, quantile)
    if not sketch.count:
        return None
    lowest_s = max(0.0, sketch.sum_s - sketch.sum_error_s)
    total = sketch.count + sketch.missed
    if sketch.missed > _MISSED_RATIO * total:
        return Bounds(lowest_s / total, LONGEST_S)
    highest_s = sketch.sum_s + sketch.sum_error_s
    return Bounds(lowest_s / sketch.count, min(highest_s / sketch.count, LONGEST_S))


def against_target_s(sketch: LatencySketch, target: LatencyTarget) -> float | None:
    """The latency that is compared with the target, in seconds: the measured one, or the bound that
    is next to the target. None: no request, or it may be on either side."""
    bounds = bounds_of(sketch, target.quantile)
    return None if bounds is None else bounds.against(target.seconds)


def cv(sketch: LatencySketch) -> float | None:
    """Coefficient of variation (standard deviation over mean) from the buckets; None without any.
    Variation within one bucket reads as 0. Requests of which bounds are known count as spread
    evenly between them: how far to trust a mean is an estimate, not a reading."""
    total, sum_s, squares_s2 = moments(sketch)
    if not total:
        return None
    mean_s = sum_s / total
    return math.sqrt(max(squares_s2 / total - mean_s * mean_s, 0.0)) / mean_s


def moments(sketch: LatencySketch) -> tuple[int, float, float]:
    """Number of requests in buckets, sum and sum of squares of their latencies, in seconds; see
    `cv`."""
    values = [(bucket_value_s(index), 0.0, count) for index, count in sketch.buckets]
    for low_s, high_s, count in sketch.spans:
        if high_s < LONGEST_S:
            values.append(((low_s + high_s) / 2.0, (high_s - low_s) ** 2 / 12.0, count))
    return (
        sum([count for _, _, count in values]),
        math.fsum([value * count for value, _, count in values]),
        math.fsum([count * (value * value + within) for value, within, count in values]),
    )

"""Sum of a sliding window of sketches, at the cost of those added and dropped only."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping

from dlsched.model.facts import LatencySketch


def in_order(counts: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """The buckets by index, as a sketch keeps them."""
    # Whole numbers sort faster than pairs, and this is done for every job in every cycle.
    indices = sorted(counts)
    return tuple(zip(indices, map(counts.__getitem__, indices), strict=True))


class SlidingSketch:
    """Equals `merge` of the sketches added and not yet dropped, to the last digit."""

    def __init__(self) -> None:
        self._members: deque[LatencySketch] = deque()
        self._sums_s: deque[float] = deque()
        self._counts: dict[int, int] = {}
        self._spans: Counter[tuple[float, float]] = Counter()
        self._count = 0
        self._errors = 0
        self._missed = 0
        self._inexact = 0
        """Members whose sum may be off."""
        self._total: LatencySketch | None = LatencySketch()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, sketch: LatencySketch) -> None:
        self._members.append(sketch)
        self._sums_s.append(sketch.sum_s)
        self._count += sketch.count
        self._errors += sketch.errors
        self._missed += sketch.missed
        self._inexact += sketch.sum_error_s > 0.0
        counts = self._counts
        for index, count in sketch.buckets:
            counts[index] = counts.get(index, 0) + count
        for lowest_s, highest_s, count in sketch.spans:
            self._spans[lowest_s, highest_s] += count
        self._total = None

    def drop(self) -> None:
        """Removes the oldest, as the caller decides by time; IndexError if there is none."""
        sketch = self._members.popleft()
        self._sums_s.popleft()
        self._count -= sketch.count
        self._errors -= sketch.errors
        self._missed -= sketch.missed
        self._inexact -= sketch.sum_error_s > 0.0
        counts = self._counts
        for index, count in sketch.buckets:
            left = counts[index] - count
            if left:
                counts[index] = left
            else:
                del counts[index]
        for lowest_s, highest_s, count in sketch.spans:
            self._spans[lowest_s, highest_s] -= count
            if not self._spans[lowest_s, highest_s]:
                del self._spans[lowest_s, highest_s]
        self._total = None

    def copy(self) -> SlidingSketch:
        other = SlidingSketch()
        other._members, other._sums_s = self._members.copy(), self._sums_s.copy()
        other._counts, other._count = self._counts.copy(), self._count
        other._errors, other._total = self._errors, self._total
        other._spans, other._missed = self._spans.copy(), self._missed
        other._inexact = self._inexact
        return other

    def total(self) -> LatencySketch:
        if self._total is None:
            errors_s = [one.sum_error_s for one in self._members] if self._inexact else ()
            self._total = LatencySketch(
                count=self._count,
                # Summed again each time: adding and subtracting seconds in turn would drift.
                sum_s=math.fsum(self._sums_s),
                buckets=in_order(self._counts),
                errors=self._errors,
                spans=tuple((*ends, self._spans[ends]) for ends in sorted(self._spans)),
                missed=self._missed,
                sum_error_s=math.fsum(errors_s),
            )
        return self._total

"""Sum of a sliding window of sketches, at the cost of those added and dropped only."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from copy import copy

from dlsched.model.facts import LatencySketch


def in_order(counts: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """The buckets by index, as a sketch keeps them."""
    # Whole numbers sort faster than pairs, and this is done for every job in every cycle.
    indices = sorted(counts)
    return tuple(zip(indices, map(counts.__getitem__, indices), strict=True))


class SlidingSketch:
    """The sum of the sketches added and not yet dropped, to the last digit."""

    def __init__(self) -> None:
        self._members: deque[tuple[float, LatencySketch]] = deque()
        self._counts: dict[int, int] = {}
        self._spans: Counter[tuple[float, float]] = Counter()
        self._count = 0
        self._errors = 0
        self._missed = 0
        self._total: LatencySketch | None = LatencySketch()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, sketch: LatencySketch, at_s: float = 0.0) -> None:
        """Add the sketch of that time, which is not before that of the last one."""
        self._members.append((at_s, sketch))
        self._count += sketch.count
        self._errors += sketch.errors
        self._missed += sketch.missed
        counts = self._counts
        for index, count in sketch.buckets:
            counts[index] = counts.get(index, 0) + count
        for lowest_s, highest_s, count in sketch.spans:
            self._spans[lowest_s, highest_s] += count
        self._total = None

    def drop_before(self, since_s: float) -> None:
        """Remove the sketches of earlier times."""
        while self._members and self._members[0][0] < since_s:
            self._drop()

    def _drop(self) -> None:
        _, sketch = self._members.popleft()
        self._count -= sketch.count
        self._errors -= sketch.errors
        self._missed -= sketch.missed
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
        other = copy(self)
        other._members, other._counts = self._members.copy(), self._counts.copy()
        other._spans = self._spans.copy()
        return other

    def total(self) -> LatencySketch:
        if self._total is None:
            self._total = LatencySketch(
                count=self._count,
                # Summed again each time: adding and subtracting seconds in turn would drift.
                sum_s=math.fsum([one.sum_s for _, one in self._members]),
                buckets=in_order(self._counts),
                errors=self._errors,
                spans=tuple((*ends, self._spans[ends]) for ends in sorted(self._spans)),
                missed=self._missed,
                sum_error_s=math.fsum([one.sum_error_s for _, one in self._members]),
            )
        return self._total

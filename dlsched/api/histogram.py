"""Counts of durations by bucket, as Prometheus has them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histograms' buckets: a cycle of one job takes about 1 ms, a call to an engine
that hangs is given up after seconds."""


@dataclass(frozen=True)
class Histogram:
    """Durations by bucket."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    """In each bucket alone, and above the last."""
    sum_s: float = 0.0

    def with_one(self, duration_s: float) -> Histogram:
        """One more duration; a negative one counts as zero."""
        counts, at = list(self.counts), bisect_left(BOUNDS_S, duration_s)
        counts[at] += 1
        return Histogram(tuple(counts), self.sum_s + max(duration_s, 0.0))

"""The last minutes of each job's ratio of latency to target, from the points of the stream."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from dlsched.api.stream_schema import CyclePoint

BUCKET_S = 15.0
"""One column of the trend, as a mean: the picture moves every 15 s, not every cycle."""

BUCKETS = 20
"""Columns of the trend: 5 minutes."""

MEAN_S = 30.0
"""Jobs are sorted by the mean over this time, as the order of single values jumps."""

LOW, HIGH = 0.5, 1.5
"""The scale of the trend, the same for all jobs."""

BARS = "▁▂▃▄▅▆▇█"


class _Curve:
    """One job."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, float]] = deque()
        """Times and ratios of the last 30 s."""
        self.buckets: deque[tuple[int, float, int]] = deque(maxlen=BUCKETS)
        """Number of the bucket, sum and count of its ratios. Only buckets with any."""

    def add(self, now_s: float, ratio: float) -> None:
        self.recent.append((now_s, ratio))
        number = int(now_s // BUCKET_S)
        _, total, count = (
            self.buckets.pop() if self.buckets and self.buckets[-1][0] == number else (0, 0.0, 0)
        )
        self.buckets.append((number, total + ratio, count + 1))


class Curves:
    """All jobs. Jobs that are gone are forgotten."""

    def __init__(self) -> None:
        self._curves: dict[str, _Curve] = {}
        self._now_s = -math.inf

    def add(self, point: CyclePoint) -> None:
        """Take a cycle, once. The daemon's clock goes on over its restart."""
        if point.now_s <= self._now_s:
            return
        self._now_s = point.now_s
        curves = {}
        for job in point.jobs:
            curve = curves[job.name] = self._curves.get(job.name) or _Curve()
            if job.ratio is not None:
                curve.add(point.now_s, job.ratio)
            while curve.recent and point.now_s - curve.recent[0][0] > MEAN_S:
                curve.recent.popleft()
        self._curves = curves

    def means(self) -> Mapping[str, float]:
        """The mean of each job with a ratio in the last 30 s."""
        return {
            name: sum(ratio for _, ratio in curve.recent) / len(curve.recent)
            for name, curve in self._curves.items()
            if curve.recent
        }

    def trends(self) -> Mapping[str, Sequence[float | None]]:
        """The columns of each job with any ratio in the last 5 minutes, oldest first."""
        last = int(self._now_s // BUCKET_S) if self._curves else 0
        found = {}
        for name, curve in self._curves.items():
            columns: list[float | None] = [None] * BUCKETS
            for number, total, count in curve.buckets:
                if number > last - BUCKETS:
                    columns[number - last - 1] = total / count
            if any(one is not None for one in columns):
                found[name] = columns
        return found


def bar(ratio: float | None) -> str:
    """One column of a trend. Up to the target it is at most the lower half; None: a gap."""
    if ratio is None:
        return " "
    step = math.ceil((ratio - LOW) / (HIGH - LOW) * len(BARS)) - 1
    return BARS[min(max(step, 0), len(BARS) - 1)]

"""What was measured of a service's latency target, by slices of a record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dlsched.estimate.sketch import measured_s, merge, quantile_s
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import LatencyTarget
from dlsched.simulation.advice.result import LEAST_REQUESTS, MeasuredTarget
from dlsched.simulation.trace.observed import SLICE_S, ObservedJob


@dataclass(slots=True)
class Latencies:
    """Latencies of one service, by slice."""

    job: ObservedJob
    target: LatencyTarget
    """The last one, for which `slices` and `met` count."""
    slice_at: int = -1
    now: LatencySketch = LatencySketch()
    whole: LatencySketch = LatencySketch()
    slices: int = 0
    met: int = 0
    factors: list[tuple[float, int]] = field(default_factory=list)
    """Of each slice: the quantile over the mean, and its requests."""

    def take(self, target: LatencyTarget, fresh: LatencySketch, now_s: float) -> None:
        """Add what a cycle received."""
        at = int(now_s // SLICE_S)
        if at != self.slice_at or target != self.target:
            self.close()
            self.slice_at = at
        if target != self.target:
            self.target, self.slices, self.met = target, 0, 0
        self.now = merge(self.now, fresh)

    def close(self) -> None:
        """End the present slice."""
        target, sketch, self.now = self.target, self.now, LatencySketch()
        seconds = measured_s(sketch, target.quantile)
        if seconds is None:
            return
        self.whole = merge(self.whole, sketch)
        self.slices += 1
        self.met += seconds <= target.seconds
        mean_s = sketch.mean_s
        if target.quantile is not None and mean_s and sketch.count >= LEAST_REQUESTS:
            tail_s = quantile_s(sketch, target.quantile)
            if tail_s is not None:
                self.factors.append((tail_s / mean_s, sketch.count))

    def measured(self) -> MeasuredTarget | None:
        """The target's kind of latency over all requests; None: none came."""
        seconds = measured_s(self.whole, self.target.quantile)
        if seconds is None:
            return None
        met = self.met / self.slices if self.slices else float(seconds <= self.target.seconds)
        return MeasuredTarget(seconds, self.whole.count, met)

    def factor(self) -> float:
        """The quantile over the mean; 1 for a mean."""
        target = self.target
        if target.quantile is None:
            return 1.0
        if self.factors:
            requests = sum(count for _, count in self.factors)
            return max(1.0, math.fsum(each * count for each, count in self.factors) / requests)
        tail_s = quantile_s(self.whole, target.quantile)
        return max(1.0, tail_s / self.whole.mean_s) if tail_s and self.whole.mean_s else 1.0

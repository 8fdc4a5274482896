"""Estimate of a service's arrival rate, and of its dependence on latency.

The arrivals in a sample are the requests answered plus the growth of requests in flight. In an open
loop the rate does not depend on latency. In a closed loop of N clients with think time Z, the time
between requests is (Z + latency) / N, so it grows with latency. A straight line fitted to (latency,
time between requests) shows which it is: for an open loop it is level, for a closed loop it
predicts the rate at any latency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlsched.estimate.tuning import CLEARLY, SIGMAS

_REMEMBERED_S = 60.0
"""Time constant of fading: offered load changes within minutes. For half and twice as much see the
benchmark `open-loop`."""
_STRETCH_S, _STRETCHES = 4.0, 3
"""Debounce: offered load has grown when so many stretches in a row show it. A burst of 5 s fills at
most two of them, and must not change the expected rate."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Requests that arrived in a few seconds, and the sum of their samples' mean latencies."""

    requests: float = 0.0
    span_s: float = 0.0
    latency_s: float = 0.0

    def plus(self, other: Stretch) -> Stretch:
        return Stretch(
            self.requests + other.requests,
            self.span_s + other.span_s,
            self.latency_s + other.latency_s,
        )


_NOTHING = Stretch()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Faded sums for the least squares: over requests, their sample's mean latency and spacing."""

    requests: float = 0.0
    span_s: float = 0.0
    latency_s: float = 0.0
    latency_square: float = 0.0
    product: float = 0.0
    in_flight: int = 0
    """At the end of the last sample."""
    now: Stretch = _NOTHING
    """The present, unfinished stretch."""
    more: Stretch = _NOTHING
    """Sum of the last stretches in a row that all show clearly more requests than expected, without
    the first, in which the growth began."""
    more_count: int = 0
    """Number of these, including the first."""

    def after(self, answered: int, mean_s: float, elapsed_s: float, in_flight: int) -> Arrivals:
        """The estimate after a sample with `answered` requests of mean latency `mean_s`."""
        came = float(max(answered + in_flight - self.in_flight, 0))
        if elapsed_s <= 0.0:
            return self
        kept = math.exp(-elapsed_s / _REMEMBERED_S)
        found = Arrivals(
            kept * self.requests + came,
            kept * self.span_s + elapsed_s,
            kept * self.latency_s + came * mean_s,
            kept * self.latency_square + came * mean_s * mean_s,
            kept * self.product + elapsed_s * mean_s,
            in_flight,
            self.now.plus(Stretch(came, elapsed_s, came * mean_s)),
            self.more,
            self.more_count,
        )
        return found if found.now.span_s < _STRETCH_S else found._after_stretch()

    def _after_stretch(self) -> Arrivals:
        """The estimate at the end of a stretch. Where offered load has grown, older samples are
        dropped immediately; where it has shrunk they fade, since that is not urgent."""
        if not self._is_more(self.now):
            return replace(self, now=_NOTHING, more=_NOTHING, more_count=0)
        more = self.more.plus(self.now) if self.more_count else _NOTHING
        if self.more_count + 1 < _STRETCHES:
            return replace(self, now=_NOTHING, more=more, more_count=self.more_count + 1)
        mean_s = more.latency_s / more.requests
        return Arrivals(
            more.requests,
            more.span_s,
            more.latency_s,
            more.latency_s * mean_s,
            more.span_s * mean_s,
            self.in_flight,
        )

    def _is_more(self, stretch: Stretch) -> bool:
        """Whether clearly more requests arrived than expected, and not because latency fell: a
        closed loop sends more requests when it is served faster."""
        expected = self.requests / self.span_s * stretch.span_s
        least = max(CLEARLY * expected, expected + 0.5 * SIGMAS * math.sqrt(expected))
        if stretch.requests <= least:
            return False
        return CLEARLY * stretch.latency_s / stretch.requests >= self.latency_s / self.requests

    @property
    def are_of_one(self) -> bool:
        """Whether one client sends them: the time between two grows by as much as they take longer.
        With any slope above 0, 7 of 137 bursty open loops were taken for one; with this, none."""
        return 1.0 / CLEARLY < self._per_client < CLEARLY

    @property
    def _per_client(self) -> float:
        """Slope of the line, 1 / N; 0 if it is not significantly above 0 (open loop)."""
        if self.requests <= 0.0:
            return 0.0
        mean_s = self.latency_s / self.requests
        spread = self.latency_square - self.requests * mean_s * mean_s
        if spread <= 1e-9 * self.latency_square:
            return 0.0
        slope = (self.product - self.span_s * mean_s) / spread
        error = self.span_s / self.requests / math.sqrt(spread)
        # Upper bound: clients without think time.
        steepest = self.span_s / self.latency_s
        return min(slope, steepest) if slope > SIGMAS * error else 0.0

    def rate_per_s(self, latency_s: float) -> float:
        """Arrivals a second at that latency; 0: unknown."""
        if self.span_s <= 0.0 or self.requests <= 0.0:
            return 0.0
        slope = self._per_client
        mean_s, gap_s = self.latency_s / self.requests, self.span_s / self.requests
        between_s = gap_s + slope * (latency_s - mean_s)
        return 1.0 / max(between_s, 1e-9)


NO_ARRIVALS = Arrivals()

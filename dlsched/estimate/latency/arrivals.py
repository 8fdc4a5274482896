"""How many requests a second a service is asked for, and whether being slower makes it fewer.

Requests that came in a look are those that were answered and those by which more are waiting. An
open loop is asked as often however slow it is. In a closed loop of N clients, each of which thinks
Z before it asks again, the time between requests is (Z + latency) / N: it grows with latency. So
the line through (latency, time between requests) tells them apart: it is level for an open loop,
and for a closed one it says how often it is asked at any latency.

Owns that line. It must not know cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.estimate.tuning import SIGMAS

_REMEMBERED_S = 60.0
"""Older looks fade: offered load changes within minutes. Half or twice as much: see `open-loop`."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What was seen, faded: sums over requests of their looks' mean latency and spacing."""

    requests: float = 0.0
    span_s: float = 0.0
    latency_s: float = 0.0
    latency_square: float = 0.0
    product: float = 0.0
    in_flight: int = 0
    """At the end of the last look."""

    def after(self, answered: int, mean_s: float, elapsed_s: float, in_flight: int) -> Arrivals:
        """What is known after a look: so many answers that took `mean_s` in the mean."""
        came = float(max(answered + in_flight - self.in_flight, 0))
        if elapsed_s <= 0.0:
            return self
        kept = math.exp(-elapsed_s / _REMEMBERED_S)
        return Arrivals(
            kept * self.requests + came,
            kept * self.span_s + elapsed_s,
            kept * self.latency_s + came * mean_s,
            kept * self.latency_square + came * mean_s * mean_s,
            kept * self.product + elapsed_s * mean_s,
            in_flight,
        )

    @property
    def _per_client(self) -> float:
        """Slope of the line: 1 / N; 0 where it is level, as far as is known."""
        if self.requests <= 0.0:
            return 0.0
        mean_s = self.latency_s / self.requests
        spread = self.latency_square - self.requests * mean_s * mean_s
        if spread <= 1e-9 * self.latency_square:
            return 0.0
        slope = (self.product - self.span_s * mean_s) / spread
        error = self.span_s / self.requests / math.sqrt(spread)
        # Clients that do not think at all make the steepest line that there can be.
        steepest = self.span_s / self.latency_s
        return min(slope, steepest) if slope > SIGMAS * error else 0.0

    def rate_per_s(self, latency_s: float) -> float:
        """Requests a second that come while it takes so long; 0: none is known."""
        if self.span_s <= 0.0 or self.requests <= 0.0:
            return 0.0
        slope = self._per_client
        mean_s, gap_s = self.latency_s / self.requests, self.span_s / self.requests
        between_s = gap_s + slope * (latency_s - mean_s)
        return 1.0 / max(between_s, 1e-9)


NONE_SEEN = Arrivals()

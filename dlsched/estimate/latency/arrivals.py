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
from dataclasses import dataclass, replace

from dlsched.estimate.tuning import CLEARLY, SIGMAS

_REMEMBERED_S = 60.0
"""Older looks fade: offered load changes within minutes. Half or twice as much: see `open-loop`."""
_STRETCH_S, _STRETCHES = 4.0, 3
"""Offered load has changed when this many stretches in a row show it. A burst of 5 s fills at most
two of them, and bursts must not change what a service is expected to be asked for."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A few seconds of requests: how many came, in how long, and their summed mean latency."""

    requests: float = 0.0
    span_s: float = 0.0
    latency_s: float = 0.0

    def plus(self, other: Stretch) -> Stretch:
        """Both together."""
        return Stretch(
            self.requests + other.requests,
            self.span_s + other.span_s,
            self.latency_s + other.latency_s,
        )


_NOTHING = Stretch()


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
    now: Stretch = _NOTHING
    """The stretch that has begun."""
    more: Stretch = _NOTHING
    """The last whole stretches, as far back as all show clearly more requests than remembered; not
    the first of them, in which that began."""
    more_count: int = 0
    """How many these are, with the first."""

    def after(self, answered: int, mean_s: float, elapsed_s: float, in_flight: int) -> Arrivals:
        """What is known after a look: so many answers that took `mean_s` in the mean."""
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
        """It, with the stretch that is over compared. Where offered load has grown, older looks are
        forgotten at once; where it has shrunk, they fade: nobody waits for that."""
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
        """Whether clearly more requests came than remembered, and not since they took less time: a
        closed loop asks more often while it is faster."""
        expected = self.requests / self.span_s * stretch.span_s
        least = max(CLEARLY * expected, expected + 0.5 * SIGMAS * math.sqrt(expected))
        if stretch.requests <= least:
            return False
        return CLEARLY * stretch.latency_s / stretch.requests >= self.latency_s / self.requests

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

"""Requests of a service: when each arrives, and its cost. The draws depend on nothing that a policy
does: runs with the same seed have the same arrivals, and the n-th request has the same cost."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

TABLE = 256
"""Number of quantiles that represent a distribution of work."""
_PIECE_S = 1.0
"""A changing rate counts as constant for this long."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The clients of a service, and when they send requests."""

    kind: Literal["poisson", "periodic", "called", "closed"]
    """Open: independent arrivals, regular ones, as a camera's, or those of other services alone.
    Closed: clients that send the next request a while after the answer."""
    rate_per_s: float = 0.0
    """Mean rate of an open loop, without bursts."""
    clients: int = 1
    think_s: float = 0.0
    """Mean time from an answer to the same client's next request, exponential."""
    burst_factor: float = 1.0
    """The rate during a burst, as a multiple of the rate outside."""
    burst_for_s: float = 5.0
    burst_every_s: float = 60.0
    """Time between the beginnings of two bursts."""
    batch: int = 0
    """Requests that arrive at the same moment, besides the others."""
    batch_at_s: float = 0.0
    """When the first batch comes."""
    batch_every_s: float = 60.0

    @property
    def is_open(self) -> bool:
        """Whether requests arrive regardless of answers."""
        return self.kind != "closed"

    def rate_at(self, at_s: float) -> float:
        """Requests per second at that time."""
        rate = self.rate_per_s
        if self.burst_factor != 1.0 and at_s % self.burst_every_s < self.burst_for_s:
            rate *= self.burst_factor
        return rate


@dataclass(frozen=True, slots=True)
class RequestWork:
    """The cost of a service's requests."""

    mean_core_s: float
    noise: float = 0.2
    """Standard deviation over the mean, log-normal."""
    heavy_ratio: float = 0.0
    """Fraction of the requests that cost `heavy_factor` times as much."""
    heavy_factor: float = 10.0


class RequestStream:
    """The requests of one service, in order. Seconds count from the trace's beginning."""

    def __init__(self, loop: Loop, work: RequestWork, seed: str) -> None:
        self._loop = loop
        self._work = work
        self._times = random.Random(f"{seed}/arrivals")
        self._works = random.Random(f"{seed}/works")
        self._factors = work_factors(work.noise)
        heavy = work.heavy_ratio
        self._light = 1.0 / (1.0 - heavy + heavy * work.heavy_factor)
        self._at_s = 0.0

    def next_s(self, times_rate: float = 1.0) -> float:
        """Arrival of the next request of an open loop, at a multiple of its rate."""
        if self._loop.kind == "called":
            return math.inf
        need = self._times.expovariate(1.0) if self._loop.kind == "poisson" else 1.0
        while True:
            rate = self._loop.rate_at(self._at_s) * times_rate
            piece_s = (math.floor(self._at_s / _PIECE_S) + 1.0) * _PIECE_S - self._at_s
            if rate * piece_s >= need:
                self._at_s += need / rate
                return self._at_s
            need -= rate * piece_s
            self._at_s += piece_s

    def think_s(self) -> float:
        """The pause of a closed loop's client."""
        mean_s = self._loop.think_s
        return self._times.expovariate(1.0 / mean_s) if mean_s > 0.0 else 0.0

    def core_s(self) -> float:
        draw = self._works.random
        factor = self._factors[int(draw() * TABLE)]
        if self._work.heavy_ratio:
            factor *= self._light
            if draw() < self._work.heavy_ratio:
                factor *= self._work.heavy_factor
        return self._work.mean_core_s * factor


@lru_cache(maxsize=64)
def work_factors(noise: float) -> tuple[float, ...]:
    """A request's work over its mean, at evenly spaced quantiles; the mean is 1."""
    sigma = math.sqrt(math.log(1.0 + noise * noise))
    normal = NormalDist()
    raw = [math.exp(sigma * normal.inv_cdf((index + 0.5) / TABLE)) for index in range(TABLE)]
    mean = math.fsum(raw) / TABLE
    return tuple(one / mean for one in raw)

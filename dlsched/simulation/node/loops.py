"""How requests come to a service: when each is sent, and what it will cost to answer.

Owns the draws, which depend on nothing that a policy does: two runs with the same seed play the
same arrivals, and the n-th request costs the same in both. It must not know queues or cores.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

TABLE = 256
"""Quantiles that a distribution of work is kept in."""
_PIECE_S = 1.0
"""A rate that changes is taken to be the same for so long."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Who asks a service, and when."""

    kind: Literal["poisson", "periodic", "closed"]
    """Open: arrivals that are independent of each other, or as regular as a camera's. Closed: so
    many clients, each of whom thinks and asks again when it is answered."""
    rate_per_s: float = 0.0
    """Of an open loop, in the mean but for its bursts and its wave."""
    clients: int = 1
    think_s: float = 0.0
    """Mean time from an answer to the same client's next request, exponential."""
    burst_factor: float = 1.0
    """The rate during a burst, as a multiple of the rate outside."""
    burst_for_s: float = 5.0
    burst_every_s: float = 60.0
    """From one burst's beginning to the next."""
    wave_ratio: float = 0.0
    """A day's wave: so much of the rate comes and goes with it, as a sine."""
    wave_s: float = 86_400.0

    @property
    def is_open(self) -> bool:
        """Whether requests come whether or not the last ones are answered."""
        return self.kind != "closed"

    def rate_at(self, at_s: float) -> float:
        """Requests a second then."""
        rate = self.rate_per_s
        if self.burst_factor != 1.0 and at_s % self.burst_every_s < self.burst_for_s:
            rate *= self.burst_factor
        if self.wave_ratio:
            rate *= 1.0 + self.wave_ratio * math.sin(2.0 * math.pi * at_s / self.wave_s)
        return rate


@dataclass(frozen=True, slots=True)
class Work:
    """What the requests of a service cost."""

    mean_core_s: float
    noise: float = 0.2
    """Standard deviation over the mean, log-normal."""
    heavy_ratio: float = 0.0
    """Part of the requests that cost `heavy_factor` times what the others do."""
    heavy_factor: float = 10.0


class Arrivals:
    """The requests of one service, in order. Seconds count from the trace's beginning."""

    def __init__(self, loop: Loop, work: Work, seed: str) -> None:
        self._loop = loop
        self._work = work
        self._times = random.Random(f"{seed}/arrivals")
        self._works = random.Random(f"{seed}/works")
        self._factors = work_factors(work.noise)
        heavy = work.heavy_ratio
        self._light = 1.0 / (1.0 - heavy + heavy * work.heavy_factor)
        self._at_s = 0.0

    def next_s(self, times_rate: float = 1.0) -> float:
        """When the next request of an open loop comes, at so many times its rate."""
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
        """How long a client of a closed loop thinks."""
        mean_s = self._loop.think_s
        return self._times.expovariate(1.0 / mean_s) if mean_s > 0.0 else 0.0

    def core_s(self) -> float:
        """What the next request costs."""
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

"""An inference service under a given number of cores, with requests as counts.

Between two changes a bounded number of drawn latencies represents the requests. Latency is a + w /
c with c = min(cores, threads). Closed loop: one client. Open loop: Poisson arrivals at one server,
with the stationary wait of Pollaczek and Khinchine plus the backlog of an overload.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from dlsched.estimate.sliding import in_order
from dlsched.model.facts import LatencySketch, Report
from dlsched.model.spec import BAND_RATIO, LatencyTarget, Target
from dlsched.report.buckets import LONGEST_S, bucket_index
from dlsched.simulation.node.loops import TABLE, work_factors
from dlsched.simulation.node.workloads import ServiceLoad

_DRAWS = 8
"""Maximum of drawn latencies that represent all answers at one pace."""
_SATURATED = 0.98
"""Load beyond which there is no stationary queue, only the backlog."""
_EPS = 1e-9


class LatencyTally:
    """Latencies that were not reported yet."""

    def __init__(self) -> None:
        self._count = 0
        self._sum_s = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, latency_s: float, count: int = 1) -> None:
        latency_s = min(latency_s, LONGEST_S)
        self._count += count
        self._sum_s += count * latency_s
        bucket = bucket_index(latency_s)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def take(self) -> LatencySketch | None:
        """The sketch of all of them, then begin again; None: there are none."""
        latency = None
        if self._count:
            latency = LatencySketch(self._count, self._sum_s, in_order(self._buckets))
        self._count, self._sum_s = 0, 0.0
        self._buckets.clear()
        return latency


class Service:
    """Answers requests while it runs."""

    def __init__(self, load: ServiceLoad, target: Target | None, chance: random.Random) -> None:
        self.load = load
        self.usage_core_s = 0.0
        self.cores = 0.0
        self.throttled = False
        self.within_s = 0.0
        """Seconds in which the true latency was within 10 % of the target."""
        self.met_s = 0.0
        """Seconds in which it was at most the target."""
        self.work_core_s = load.work_core_s
        self.arrivals_per_s = load.arrivals_per_s
        self._target = target if isinstance(target, LatencyTarget) else None
        self._chance = chance
        self._factors = work_factors(load.noise)
        self._full_s = self._pace_s = math.inf
        self._wait_s = 0.0
        self._true_s = math.inf
        self._backlog = 0.0
        self._busy = False
        self._answered = 0.0
        self._last_line_s = -math.inf
        self._tally = LatencyTally()

    @property
    def changes_by_itself(self) -> bool:
        """Whether its queue has filled or emptied, which changes the cores that it wants."""
        return self._busy != (self._backlog >= 1.0)

    @property
    def true_latency_s(self) -> float:
        """The value compared with the target, at the present pace, without noise."""
        return self._true_s + self._backlog * self._pace_s if self._backlog else self._true_s

    def shift(self, work: float, arrivals: float) -> None:
        """Multiply the load's work and arrivals by these factors from now on."""
        self._close()
        self.work_core_s = self.load.work_core_s * work
        if self.load.arrivals_per_s is not None:
            self.arrivals_per_s = self.load.arrivals_per_s * arrivals

    def wants_cores(self, quota_cores: float) -> float:
        """Its mean use when alone on the node."""
        speed = min(self.load.threads, quota_cores)
        self._full_s = self.load.overhead_s + self.work_core_s / speed
        most = self.work_core_s / self._full_s
        self._busy = self._backlog >= 1.0
        if self.arrivals_per_s is None or self._busy:
            return most
        return min(most, self.arrivals_per_s * self.work_core_s)

    def grant(self, cores: float, quota_cores: float) -> None:
        """Set its mean cores; less than it wants makes it slower."""
        wants = self.wants_cores(quota_cores)
        self.cores = cores
        alone = cores >= wants * (1.0 - _EPS)
        pace_s = self._full_s if alone else self.work_core_s / max(cores, 1e-9)
        binding = quota_cores < self.load.threads
        self.throttled = binding and alone and (self.arrivals_per_s is None or self._busy)
        if pace_s != self._pace_s:
            self._close()
            self._pace_s = pace_s
        self._wait_s = self._queue_wait_s()
        self._true_s = self._stationary_s()

    def ends_in_s(self) -> float:
        """Infinite: a service does not end."""
        return math.inf

    def finish(self, now_s: float) -> None:
        """Never called: a service does not end."""

    def advance(self, _now_s: float, elapsed_s: float) -> None:
        """Let time pass at the present pace."""
        self.usage_core_s += self.cores * elapsed_s
        target = self._target
        if target is not None:
            true_s = self.true_latency_s
            if true_s <= target.seconds * (1.0 + BAND_RATIO + _EPS):
                if true_s >= target.seconds * (1.0 - BAND_RATIO - _EPS):
                    self.within_s += elapsed_s
                if true_s <= target.seconds * (1.0 + _EPS):
                    self.met_s += elapsed_s
        room = elapsed_s / self._pace_s
        if self.arrivals_per_s is None:
            self._answered += room
            return
        come = _poisson(self._chance, self.arrivals_per_s * elapsed_s)
        served = min(self._backlog + come, room)
        self._backlog += come - served
        self._answered += served

    def crash(self) -> None:
        """Its process is gone, with the queue and what was not reported yet."""
        self._backlog = self._answered = 0.0
        self._tally.take()

    def lines(self, now_s: float) -> Sequence[Report]:
        """The line of its reporter, if one is due."""
        if now_s - self._last_line_s < self.load.report_s - 1e-6:
            return ()
        self._last_line_s = now_s
        self._close()
        latency = self._tally.take()
        oldest_s = self._answered * self._pace_s if self._pace_s < math.inf else 0.0
        in_flight = 1
        if self.arrivals_per_s is not None:
            in_flight = round(self._backlog)
            oldest_s = self._backlog * self._pace_s
        return (Report(now_s, latency=latency, in_flight=in_flight, oldest_s=oldest_s),)

    # ------------------------------------------------------------------ arithmetic

    def _queue_wait_s(self) -> float:
        """Stationary mean wait in the queue; 0 in a closed loop."""
        if self.arrivals_per_s is None:
            return 0.0
        load = min(_SATURATED, self.arrivals_per_s * self._pace_s)
        part = (self._pace_s - self.load.overhead_s) / self._pace_s * self.load.noise
        return load * self._pace_s * (1.0 + part * part) / (2.0 * (1.0 - load))

    def _stationary_s(self) -> float:
        """Mean or quantile of the latency, as the target asks, without a backlog."""
        quantile = self._target.quantile if self._target else None
        if quantile is None:
            return self._pace_s + self._wait_s
        a, busy_s = self.load.overhead_s, self._pace_s - self.load.overhead_s
        rank = min(TABLE - 1, int(quantile * TABLE))
        if not self._wait_s:
            return a + busy_s * self._factors[rank]
        # 97 and 256 are coprime, so that waits and works are combined evenly.
        waits = (self._wait(((index * 97) % TABLE + 0.5) / TABLE) for index in range(TABLE))
        return sorted(
            a + busy_s * factor + wait_s
            for factor, wait_s in zip(self._factors, waits, strict=True)
        )[rank]

    def _wait(self, part: float) -> float:
        """That quantile of the waits: none, or exponential."""
        load = min(_SATURATED, (self.arrivals_per_s or 0.0) * self._pace_s)
        if part <= 1.0 - load:
            return 0.0
        return -math.log((1.0 - part) / load) * self._wait_s / load

    def _close(self) -> None:
        """Turn what was answered at one pace into counted latencies."""
        count = int(self._answered + _EPS)
        if not count:
            return
        self._answered = max(0.0, self._answered - count)
        chance, factors, tally = self._chance.random, self._factors, self._tally
        a, busy_s = self.load.overhead_s, self._pace_s - self.load.overhead_s
        wait_s = self._backlog * self._pace_s
        draws = min(count, _DRAWS)
        many = count > _DRAWS
        turn = 0
        if many:
            # Stratified draws have hardly any noise in their mean: add that of all requests.
            noise = self._chance.gauss(0.0, self.load.noise / math.sqrt(count))
            busy_s *= max(0.1, 1.0 + noise)
            turn = int(chance() * draws)
        # The remainder is spread evenly over the strata.
        before = turn // draws
        for index in range(draws):
            part = (index + chance()) / draws if many else chance()
            latency_s = a + busy_s * factors[int(part * TABLE)] + wait_s
            if self._wait_s:
                latency_s += self._wait(chance())
            upto = ((index + 1) * count + turn) // draws
            tally.add(latency_s, upto - before)
            before = upto


def quantile_factor(noise: float, quantile: float | None) -> float:
    """A request's work at that quantile over its mean; 1 for the mean."""
    if quantile is None:
        return 1.0
    return work_factors(noise)[min(TABLE - 1, int(quantile * TABLE))]


def _poisson(chance: random.Random, mean: float) -> int:
    if mean > 30.0:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    left, count = math.exp(-mean), 0
    product = chance.random()
    while product > left:
        product *= chance.random()
        count += 1
    return count

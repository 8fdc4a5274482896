"""An inference service whose requests are simulated one by one, under the kernel's CPU periods.

A request waits for a worker, then for `overhead_s`, then computes: under a quota at full speed
until the period's CPU time is used up, then not until the next period. Periods of different
services are not in phase.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from dlsched.model.facts import Report
from dlsched.model.spec import LatencyTarget, Target
from dlsched.simulation.node.loops import RequestStream, RequestWork
from dlsched.simulation.node.service import BAND_RATIO, LatencyTally
from dlsched.simulation.node.workloads import ServiceLoad

PERIOD_S = 0.1
"""The kernel's period of CPU bandwidth."""
JUDGED_S = 30.0
"""Length of the intervals of arrivals over which a target is evaluated."""
_EPS = 1e-9


@dataclass(slots=True)
class _Request:
    came_s: float
    left_core_s: float
    serial_core_s: float = 0.0
    """The part that one thread does before all do the rest."""


class PlayedService:
    """Answers requests while it runs. Requests that arrive at other times are lost."""

    def __init__(self, load: ServiceLoad, target: Target | None, seed: str) -> None:
        assert load.loop is not None
        self.load = load
        self.usage_core_s = 0.0
        self.cores = 0.0
        self.speed = 1.0
        """Work done per core-second."""
        self.throttled = False
        self.came_s = array("d")
        self.took_s = array("d")
        """Latency of each answered request, in the order of the answers."""
        self._loop = load.loop
        work = RequestWork(load.work_core_s, load.noise, load.heavy_ratio, load.heavy_factor)
        self._arrivals = RequestStream(self._loop, work, seed)
        self._target = target if isinstance(target, LatencyTarget) else None
        self._times_work = self._times_rate = 1.0
        self._phase_s = random.Random(f"{seed}/phase/arrivals").random() * PERIOD_S
        self._runs = False
        self._now_s = 0.0
        self._queue: deque[_Request] = deque()
        self._waiting: list[tuple[float, int, _Request]] = []
        self._computing: list[_Request] = []
        self._thinking: list[float] = []
        self._order = 0
        self._next_s = self._arrivals.next_s() if self._loop.is_open else math.inf
        self._quota_cores = math.inf
        self._budget_core_s = math.inf
        self._refill_s = math.inf
        self._counted_s = math.inf
        """End of the last period that counts as throttled."""
        self._last_line_s = -math.inf
        self._tally = LatencyTally()

    # ------------------------------------------------------------------ for the world

    @property
    def changes_by_itself(self) -> bool:
        """Never, except at the moments that it announces (`ends_in_s`)."""
        return False

    def begin(self, now_s: float) -> None:
        """Its process is up: requests are accepted from now on."""
        self._runs, self._now_s = True, now_s
        self._skip_missed()
        if not self._loop.is_open:
            self._thinking = sorted(
                now_s + self._arrivals.think_s() for _ in range(self._loop.clients)
            )
        self._take(now_s)

    def wants_cores(self, quota_cores: float) -> float:
        """The cores that its threads would use at this moment."""
        self._set_quota(quota_cores)
        most = self._most_cores
        return 0.0 if self._is_bound and self._budget_core_s <= _EPS else most

    def grant(self, cores: float, _quota_cores: float) -> None:
        self.cores = cores

    def ends_in_s(self) -> float:
        """Seconds until its next event."""
        next_s = min(self._next_s, self._refill_s, self._counted_s)
        if self._waiting:
            next_s = min(next_s, self._waiting[0][0])
        if self._thinking:
            next_s = min(next_s, self._thinking[0])
        if self.cores > 0.0 and self._computing:
            next_s = min(next_s, self._now_s + self._done_in_s())
            if self._is_bound:
                next_s = min(next_s, self._now_s + self._budget_core_s / self.cores)
        return max(next_s - self._now_s, 0.0)

    def advance(self, now_s: float, elapsed_s: float) -> None:
        """Let time pass without events."""
        self._now_s = now_s + elapsed_s
        used = self.cores * elapsed_s
        if used > 0.0:
            self.usage_core_s += used
            self._budget_core_s -= used
            self._work(used * self.speed)

    def happen(self, now_s: float) -> None:
        self._now_s = now_s
        self._answer(now_s)
        while self._waiting and self._waiting[0][0] <= now_s + _EPS:
            self._computing.append(heappop(self._waiting)[2])
        self._take(now_s)
        if self._refill_s <= now_s + _EPS:
            self._refill_s = math.inf
            self._budget_core_s = self._quota_cores * PERIOD_S
        elif self._is_bound and self._budget_core_s <= _EPS:
            self.throttled = True
            self._counted_s = now_s + PERIOD_S
        if self._counted_s <= now_s + _EPS:
            self.throttled, self._counted_s = False, math.inf
        self._plan_refill()

    def crash(self) -> None:
        """Its process is gone, with the queue and what was not reported yet."""
        self._runs = False
        self._queue.clear()
        self._waiting.clear()
        self._computing.clear()
        self._thinking.clear()
        self.cores = 0.0
        self._tally.take()

    def shift(self, work: float, arrivals: float) -> None:
        """Multiply the load's work and arrivals by these factors from now on."""
        self._times_work, self._times_rate = work, arrivals

    def lines(self, now_s: float) -> Sequence[Report]:
        """The line of its reporter, if one is due."""
        if now_s - self._last_line_s < self.load.report_s - 1e-6:
            return ()
        self._last_line_s = now_s
        latency = self._tally.take()
        there = self._unanswered()
        oldest_s = now_s - min(one.came_s for one in there) if there else 0.0
        return (Report(now_s, latency=latency, in_flight=len(there), oldest_s=oldest_s),)

    # ------------------------------------------------------------------ for scoring

    @property
    def within_s(self) -> float:
        """Seconds in which the latency was within 10 % of the target."""
        return self._judged_s(1.0 - BAND_RATIO, 1.0 + BAND_RATIO)

    @property
    def met_s(self) -> float:
        """Seconds in which it was at most the target."""
        return self._judged_s(0.0, 1.0)

    def stretches(self) -> dict[int, list[float]]:
        """Latencies by the interval of `JUDGED_S` of the arrival; unanswered requests count with
        their present wait."""
        found: dict[int, list[float]] = {}
        for came_s, took_s in zip(self.came_s, self.took_s, strict=True):
            found.setdefault(int(came_s / JUDGED_S), []).append(took_s)
        for one in self._unanswered():
            found.setdefault(int(one.came_s / JUDGED_S), []).append(self._now_s - one.came_s)
        return found

    def _judged_s(self, least: float, most: float) -> float:
        if self._target is None:
            return 0.0
        asked_s, kept = self._target.seconds, 0
        for took in self.stretches().values():
            value = mean_or_quantile(took, self._target.quantile)
            kept += least * asked_s - _EPS <= value <= most * asked_s + _EPS
        return kept * JUDGED_S

    # ------------------------------------------------------------------ queue and quota

    @property
    def _most_cores(self) -> float:
        if not self.load.serial_ratio:
            return len(self._computing) * self.load.threads
        return math.fsum(self._width(one) for one in self._computing)

    def _width(self, one: _Request) -> float:
        """Cores that a request can use at this moment."""
        return min(1.0, self.load.threads) if one.serial_core_s else self.load.threads

    def _done_in_s(self) -> float:
        """Seconds until a request, or its serial part, is done."""
        if not self.load.serial_ratio:
            least = min(one.left_core_s for one in self._computing)
            return least / (self.cores * self.speed / len(self._computing))
        least = min(
            (one.serial_core_s or one.left_core_s) / self._width(one) for one in self._computing
        )
        return least * self._most_cores / (self.cores * self.speed)

    def _work(self, core_s: float) -> None:
        """Do that much work, divided among all computing requests."""
        if not self.load.serial_ratio:
            each = core_s / len(self._computing)
            for one in self._computing:
                one.left_core_s -= each
            return
        most = self._most_cores
        for one, width in [(one, self._width(one)) for one in self._computing]:
            done = core_s * width / most
            one.left_core_s -= done
            one.serial_core_s -= min(done, one.serial_core_s)
            if one.serial_core_s <= _EPS:
                one.serial_core_s = 0.0

    @property
    def _is_bound(self) -> bool:
        """Whether its quota limits its threads at this moment, once used up."""
        return self._quota_cores < self._most_cores

    def _unanswered(self) -> list[_Request]:
        return [*self._queue, *self._computing, *(one for _, _, one in self._waiting)]

    def _skip_missed(self) -> None:
        while self._next_s < self._now_s:
            self._arrivals.core_s()
            self._next_s = self._arrivals.next_s(self._times_rate)

    def _take(self, now_s: float) -> None:
        """Accept requests that arrive now, and assign waiting ones to workers."""
        while self._next_s <= now_s + _EPS:
            self._come(now_s)
            self._next_s = self._arrivals.next_s(self._times_rate)
        while self._thinking and self._thinking[0] <= now_s + _EPS:
            heappop(self._thinking)
            self._come(now_s)
        while self._queue and len(self._waiting) + len(self._computing) < self.load.workers:
            one = self._queue.popleft()
            if self.load.overhead_s:
                self._order += 1
                heappush(self._waiting, (now_s + self.load.overhead_s, self._order, one))
            else:
                self._computing.append(one)

    def _come(self, now_s: float) -> None:
        core_s = self._arrivals.core_s() * self._times_work
        if self._runs:
            self._queue.append(_Request(now_s, core_s, self.load.serial_ratio * core_s))

    def _answer(self, now_s: float) -> None:
        done = [one for one in self._computing if one.left_core_s <= _EPS]
        if not done:
            return
        self._computing = [one for one in self._computing if one.left_core_s > _EPS]
        for one in done:
            took_s = now_s - one.came_s
            self.came_s.append(one.came_s)
            self.took_s.append(took_s)
            self._tally.add(took_s)
            if not self._loop.is_open:
                heappush(self._thinking, now_s + self._arrivals.think_s())

    def _set_quota(self, quota_cores: float) -> None:
        """A new quota begins with a full period's CPU time, as in the kernel."""
        if quota_cores != self._quota_cores:
            self._quota_cores = quota_cores
            self._budget_core_s = quota_cores * PERIOD_S
            self._refill_s = math.inf
        self._plan_refill()

    def _plan_refill(self) -> None:
        """Track periods only while the quota may limit its threads."""
        spent = self._budget_core_s < self._quota_cores * PERIOD_S
        if (
            self._refill_s == math.inf
            and (self._is_bound or spent)
            and self._quota_cores < math.inf
        ):
            periods = math.floor((self._now_s - self._phase_s) / PERIOD_S + 1e-6) + 1
            self._refill_s = self._phase_s + periods * PERIOD_S


def mean_or_quantile(values: Sequence[float], quantile: float | None) -> float:
    """The value that is compared with a target."""
    if quantile is None:
        return math.fsum(values) / len(values)
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]

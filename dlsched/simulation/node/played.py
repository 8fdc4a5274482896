"""An inference service whose requests are simulated one by one, under the kernel's CPU periods.

A request waits for a worker, then for `overhead_s`, then computes: under a quota at full speed
until the period's CPU time is used up, then not until the next period. Periods of different
services are not in phase. CPU time saved in one period is used in later ones, as far as the burst
allows.
"""

from __future__ import annotations

import math
import random
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from dlsched.model.facts import Report
from dlsched.model.spec import BAND_RATIO, LatencyTarget, Target
from dlsched.simulation.node.loops import RequestStream, RequestWork
from dlsched.simulation.node.service import LatencyTally
from dlsched.simulation.node.workloads import ServiceLoad, spinning_pace

PERIOD_S = 0.1
"""The kernel's period of CPU bandwidth."""
JUDGED_S = 30.0
"""Length of the intervals of arrivals over which a target is evaluated."""
_WAIT_MEAN_S = 10.0
"""Wait is averaged over this time, as by `runtime.cgroup.read`."""
_EPS = 1e-9


@dataclass(slots=True)
class _Request:
    came_s: float
    left_core_s: float
    serial_core_s: float = 0.0
    """The part that one thread does before all do the rest."""
    after_core_s: float = 0.0
    """The part that it does after the answer of the service that it calls."""
    asker: tuple[PlayedService, _Request] | None = None
    """The service that called, and its request."""


class PlayedService:
    """Answers requests while it runs. Requests that arrive at other times are lost."""

    changes_by_itself = False
    """Except at the moments that it announces (`ends_in_s`)."""

    def __init__(self, load: ServiceLoad, target: Target | None, seed: str) -> None:
        assert load.loop is not None
        self.load = load
        self.usage_core_s = self.cores = 0.0
        self.speed = 1.0
        """Work that the node does per core-second."""
        self._wanted_cores = 0.0
        self._waited_s = 0.0
        """Time that threads waited for a core since the last sample of it."""
        self._sampled_s = 0.0
        self.wait_ratio = 0.0
        """Fraction of about the last ten seconds in which its threads waited for a core."""
        self._pace = 1.0
        """Work that it does itself per core-second."""
        self.throttled = self.spins = False
        """`spins`: whether its threads have fewer cores than they are, and spin for each other."""
        self.touch: Callable[[], None] = lambda: None
        """Called before another service changes the cores that it wants."""
        self.callee: PlayedService | None = None
        self.asked_core_s = array("d")
        """Work of all requests that came, by second."""
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
        self._calling: list[_Request] = []
        self._order = 0
        self._next_s = self._arrivals.next_s() if self._loop.is_open else math.inf
        self._batch_s = self._loop.batch_at_s if self._loop.batch else math.inf
        self._quota_cores = math.inf
        self._burst_core_s = 0.0
        self._budget_core_s = math.inf
        self._refill_s = math.inf
        self._counted_s = math.inf
        """End of the last period that counts as throttled."""
        self._last_line_s = -math.inf
        self._tally = LatencyTally()
        self._faults = random.Random(f"{seed}/reports")
        self._late_lines: deque[Report] = deque()
        """Lines that arrive late."""

    # ------------------------------------------------------------------ for the world

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
        spent = self._is_bound and self._budget_core_s <= _EPS
        self._wanted_cores = 0.0 if spent else self._most_cores
        return self._wanted_cores

    def grant(self, cores: float, _quota_cores: float) -> None:
        self.cores = cores
        self._pace = self.speed
        if self.load.peak_cores < math.inf:
            self._pace *= self.load.efficiency(cores)
        self.spins = False
        if self.load.spin_ratio < 1.0 and cores > 0.0 and (most := self._most_cores) > 0.0:
            part = min(cores, self._quota_cores) / most
            self.spins = part < 1.0 - _EPS
            self._pace *= spinning_pace(self.load.spin_ratio, min(part, 1.0))

    def ends_in_s(self) -> float:
        """Seconds until its next event."""
        next_s = min(self._next_s, self._batch_s, self._refill_s, self._counted_s)
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
        self._waited_s += max(self._wanted_cores - self.cores, 0.0) * elapsed_s
        if used > 0.0:
            self.usage_core_s += used
            self._budget_core_s -= used
            self._work(used * self._pace)

    def happen(self, now_s: float) -> None:
        self._now_s = now_s
        self._answer(now_s)
        while self._waiting and self._waiting[0][0] <= now_s + _EPS:
            self._computing.append(heappop(self._waiting)[2])
        self._take(now_s)
        if self._refill_s <= now_s + _EPS:
            self._refill_s = math.inf
            self._budget_core_s = self._full_budget(self._budget_core_s)
        elif self._is_bound and self._budget_core_s <= _EPS:
            self.throttled = True
            self._counted_s = now_s + PERIOD_S
        if self._counted_s <= now_s + _EPS:
            self.throttled, self._counted_s = False, math.inf
        self._plan_refill()

    def crash(self) -> None:
        """Its process is gone, with the queue and what was not reported yet."""
        self._runs = False
        for asker, request in [one.asker for one in self._unanswered() if one.asker is not None]:
            asker._go_on(request)
        self._queue.clear()
        self._waiting.clear()
        self._computing.clear()
        self._thinking.clear()
        self._calling.clear()
        self.cores = 0.0
        self._tally.take()

    def shift(self, work: float, arrivals: float) -> None:
        """Multiply the load's work and arrivals by these factors from now on."""
        self._times_work, self._times_rate = work, arrivals

    def lines(self, now_s: float) -> Sequence[Report]:
        """The line of its reporter, if one is due."""
        noise, line = self.load.report_noise, self._line(now_s)
        if noise is None:
            return () if line is None else (line,)
        if line is not None and self._faults.random() >= noise.lost_ratio:
            self._late_lines.append(line)
        arrived = []
        while self._late_lines and self._late_lines[0].received_s + noise.late_s <= now_s + 1e-6:
            arrived.append(replace(self._late_lines.popleft(), received_s=now_s))
        return arrived

    def sample(self, now_s: float) -> None:
        """Update `wait_ratio` with the wait since the last sample."""
        elapsed_s = now_s - self._sampled_s
        if elapsed_s > 0.0:
            kept = math.exp(-elapsed_s / _WAIT_MEAN_S)
            ratio = min(self._waited_s / elapsed_s, 1.0)
            self.wait_ratio = kept * self.wait_ratio + (1.0 - kept) * ratio
            self._waited_s, self._sampled_s = 0.0, now_s

    def _line(self, now_s: float) -> Report | None:
        every_s = self.load.report_s
        if now_s - self._last_line_s < every_s - 1e-6 or every_s == math.inf:
            return None
        self._last_line_s = now_s
        latency = self._tally.take()
        there = self._unanswered()
        oldest_s = now_s - min(one.came_s for one in there) if there else 0.0
        return Report(now_s, latency=latency, in_flight=len(there), oldest_s=oldest_s)

    # ------------------------------------------------------------------ for scoring

    @property
    def within_s(self) -> float:
        """Seconds in which the latency was within 10 % of the target."""
        return self._judged_s(1.0 - BAND_RATIO, 1.0 + BAND_RATIO)

    @property
    def met_s(self) -> float:
        """Seconds in which it was at most the target."""
        return self._judged_s(0.0, 1.0)

    def stretches(self, every_s: float = JUDGED_S) -> dict[int, list[float]]:
        """Latencies by the interval of the arrival; unanswered requests count with their present
        wait."""
        found: dict[int, list[float]] = {}
        for came_s, took_s in zip(self.came_s, self.took_s, strict=True):
            found.setdefault(int(came_s / every_s), []).append(took_s)
        for one in self._unanswered():
            found.setdefault(int(one.came_s / every_s), []).append(self._now_s - one.came_s)
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
            return least / (self.cores * self._pace / len(self._computing))
        least = min(
            (one.serial_core_s or one.left_core_s) / self._width(one) for one in self._computing
        )
        return least * self._most_cores / (self.cores * self._pace)

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
        return self._quota_cores < math.inf and self._quota_cores < self._most_cores

    def _unanswered(self) -> list[_Request]:
        waiting = (one for _, _, one in self._waiting)
        return [*self._queue, *self._computing, *self._calling, *waiting]

    def _skip_missed(self) -> None:
        while self._next_s < self._now_s:
            self._arrivals.core_s()
            self._next_s = self._arrivals.next_s(self._times_rate)
        while self._batch_s < self._now_s:
            for _ in range(self._loop.batch):
                self._arrivals.core_s()
            self._batch_s += self._loop.batch_every_s

    def _take(self, now_s: float) -> None:
        """Accept requests that arrive now, and assign waiting ones to workers."""
        while self._next_s <= now_s + _EPS:
            self._come(now_s)
            self._next_s = self._arrivals.next_s(self._times_rate)
        while self._batch_s <= now_s + _EPS:
            for _ in range(self._loop.batch):
                self._come(now_s)
            self._batch_s += self._loop.batch_every_s
        while self._thinking and self._thinking[0] <= now_s + _EPS:
            heappop(self._thinking)
            self._come(now_s)
        self._assign(now_s)

    def _assign(self, now_s: float) -> None:
        while self._queue and self._busy_workers < self.load.workers:
            one = self._queue.popleft()
            if self.load.overhead_s:
                self._order += 1
                heappush(self._waiting, (now_s + self.load.overhead_s, self._order, one))
            else:
                self._computing.append(one)

    @property
    def _busy_workers(self) -> int:
        return len(self._waiting) + len(self._computing) + len(self._calling)

    def _come(self, now_s: float, asker: tuple[PlayedService, _Request] | None = None) -> None:
        core_s = self._arrivals.core_s() * self._times_work
        while len(self.asked_core_s) <= now_s:
            self.asked_core_s.append(0.0)
        self.asked_core_s[int(now_s)] += core_s
        if not self._runs:
            return
        after_core_s = 0.0
        if self.callee is not None:
            core_s = after_core_s = core_s / 2.0
        serial_core_s = self.load.serial_ratio * core_s
        self._queue.append(_Request(now_s, core_s, serial_core_s, after_core_s, asker))

    def _call(self, one: _Request, now_s: float) -> None:
        """Ask the other service; the answer puts the request back to work."""
        callee = self.callee
        assert callee is not None
        self._calling.append(one)
        callee.touch()
        callee._come(now_s, (self, one))
        callee._assign(now_s)
        if not callee._runs:
            self._go_on(one)

    def _go_on(self, one: _Request) -> None:
        """Do the rest of a request whose call was answered."""
        if one in self._calling:
            self.touch()
            self._calling.remove(one)
            one.left_core_s, one.after_core_s = one.after_core_s, 0.0
            self._computing.append(one)

    def _answer(self, now_s: float) -> None:
        done = [one for one in self._computing if one.left_core_s <= _EPS]
        if not done:
            return
        self._computing = [one for one in self._computing if one.left_core_s > _EPS]
        for one in done:
            if one.after_core_s:
                self._call(one, now_s)
                continue
            if one.asker is not None:
                asker, request = one.asker
                asker._go_on(request)
            took_s = now_s - one.came_s
            self.came_s.append(one.came_s)
            self.took_s.append(took_s)
            self._tally.add(took_s * self._reported_factor())
            if not self._loop.is_open:
                heappush(self._thinking, now_s + self._arrivals.think_s())

    def _reported_factor(self) -> float:
        noise = self.load.report_noise
        is_outlier = noise is not None and self._faults.random() < noise.outlier_ratio
        return noise.outlier_factor if noise and is_outlier else 1.0

    def set_burst(self, burst_cores: float) -> None:
        """CPU time that it may save up, in cores of a period."""
        self._burst_core_s = burst_cores * PERIOD_S

    def _full_budget(self, left_core_s: float) -> float:
        """A period's CPU time, with what is left of the last one as far as the burst allows."""
        fresh_core_s = self._quota_cores * PERIOD_S
        saved_core_s = min(max(left_core_s, 0.0), self._burst_core_s)
        return fresh_core_s + saved_core_s

    def _set_quota(self, quota_cores: float) -> None:
        """A new quota begins with a full period's CPU time, as in the kernel."""
        if quota_cores != self._quota_cores:
            self._quota_cores = quota_cores
            self._budget_core_s = quota_cores * PERIOD_S
            self._refill_s = math.inf
        self._plan_refill()

    def _plan_refill(self) -> None:
        """Track periods only while the quota may limit its threads."""
        if self._quota_cores == math.inf or self._refill_s < math.inf:
            return
        spent = self._budget_core_s < self._quota_cores * PERIOD_S + self._burst_core_s
        if spent or self._is_bound:
            periods = math.floor((self._now_s - self._phase_s) / PERIOD_S + 1e-6) + 1
            self._refill_s = self._phase_s + periods * PERIOD_S


def mean_or_quantile(values: Sequence[float], quantile: float | None) -> float:
    """The value that is compared with a target."""
    if quantile is None:
        return math.fsum(values) / len(values)
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]

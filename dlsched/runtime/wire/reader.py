"""A job's latencies as they are measured at its sockets, beside what it reports itself."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from dlsched.estimate.sketch import Bounds, bounds_of, measured_s, merge, quantile_bounds
from dlsched.estimate.tuning import CLEARLY, FEW_REQUESTS
from dlsched.model.facts import LatencySketch, Report, WireFact
from dlsched.model.spec import BAND_RATIO, LatencyTarget
from dlsched.runtime.progress.sidecar import SourceReading
from dlsched.runtime.wire.tap import Tap
from dlsched.runtime.wire.traffic import PortTraffic, Watched

OWN_SILENT_S = 60.0
"""A job that reported latencies within this time is judged by them, and not by its sockets."""
COMPARED_S = 60.0
"""What it reported in this time is compared with what was measured in it."""
SOONER_S = 30.0
"""Where enough is known of this time, it is compared, too: a change of load shows sooner."""
COMPARED_REQUESTS = 100
"""With fewer on one side, a p95 says little."""
DECIDED_S = 30.0
"""After the last contradiction the sockets decide so much longer: with each request both sides
change, and what is said of a target must not."""
SAME_RATIO = 0.05
"""Means are compared where the numbers of requests differ by at most so much: a page is read at
other moments than the sockets, and of a minute that is some seconds. A quantile needs no such
bound, since ranks bound what the others can do to it."""
CONTRADICTED_RATIO = 1.25
CONTRADICTED_S = 0.005
"""Two latencies that differ by more than both of these contradict one another: a program times
itself without connections, queues and the network stack, which takes some milliseconds."""
SILENT_S = 5.0
"""A port on which nothing happens is reported so often."""
RATE_S = 10.0
"""Rates and shares are of this time."""
SOON_S = 1.0

T = TypeVar("T")

_KINDS = {"answer": "whole", "first-byte": "first", "gap": "gaps"}
_MISSED = 2
"""Times that a dropped packet can leave out: that of its own answer and, where no further request
follows, that of the next one; or the gaps before and after it. It may be of any port."""
_CALLERS_SHOWN = 5


class WireReader:
    """Reads one start of a container."""

    def __init__(
        self,
        tap: Tap,
        pid: int,
        container: str,
        ports: tuple[int, ...],
        target: LatencyTarget,
        paths: Iterable[str] = (),
        *,
        yields: bool = False,
    ) -> None:
        """`ports`: (): all on which it listens. `paths`: requests for these do not count. `yields`:
        whether what it reports itself is of the same answers, so that the sockets may decide."""
        self._tap = tap
        self._watched: Watched = tap.watch(pid, container, ports, paths)
        self._target = target
        self._yields = yields
        self.decides = False
        """Whether the sockets judge its target although it reports latencies: its own contradict
        them, or are too coarse for the target. Renewed with the fact, at least every second."""
        self._coarse = False
        """Whether its own latencies were too coarse at the last fact."""
        self._contradicted_s = float("-inf")
        self._decided_s = float("-inf")
        self._kind = _KINDS[target.of]
        self._measured: deque[tuple[float, LatencySketch]] = deque()
        self._reported: deque[tuple[float, LatencySketch]] = deque()
        self._traffic: deque[tuple[float, tuple[PortTraffic, int]]] = deque()
        """With the number of connections of which one was measured."""
        self._dropped: deque[tuple[float, int]] = deque()
        self._missed: dict[int, int] = {}
        """By port: answers that may be missing since its last report."""
        self._silent_since_s: dict[int, float] = {}
        """By port: when it was last heard of, or last reported as silent."""
        self._open: dict[int, tuple[int, float]] = {}
        """By port: requests that wait for their answers, and the age of the oldest."""
        self._most_open = 0
        """The most of them in one read since `in_flight` was asked for."""
        self._whole = self._agrees = False
        """Whether all its requests are measured; whether it reports about as many."""
        self._opaque = False
        self._heard_s = float("-inf")
        """When a report came, be it that nothing happened: without any, nothing is known."""
        self._times_s: deque[tuple[float, tuple[float, float]]] = deque()
        """Seconds that were newly covered by reports, and that no report will cover."""
        self._sums_s = 0.0, 0.0
        """The same since the beginning."""
        self._fact = WireFact()
        self._fact_s = float("-inf")

    @property
    def alone(self) -> bool:
        """Whether nothing but the sockets shows what the target is about."""
        return self._target.of != "answer"

    def in_flight(self) -> int | None:
        """Requests that wait for their answers, as of the last read; where one does, the most since
        the last call, since one at a time would be a closed loop of one client. None: not known, or
        not those of which the job reports the latencies."""
        most, self._most_open = self._most_open, 0
        there = self._there()
        streams = any(oldest_s > COMPARED_S for _, oldest_s in there)
        if streams or not (self._whole and self._agrees):
            return None
        count = self._watched.one_of * sum(count for count, _ in there)
        return most if count == 1 else count

    def _there(self) -> list[tuple[int, float]]:
        """`_open` of the ports that are watched now."""
        return [self._open[port] for port in self._watched.found if port in self._open]

    def read(self, now_s: float) -> SourceReading:
        """What was measured since the previous read."""
        reports: list[Report] = []
        problem = self._watched.problem or self._tap.problem
        taken = self._watched.take(now_s)
        covered_s, missed_s = self._watched.covered_s, self._watched.missed_s
        if (covered_s, missed_s) != self._sums_s:
            if covered_s > self._sums_s[0]:
                self._heard_s = now_s
            if missed_s > self._sums_s[1]:
                self._open.clear()
            newly = covered_s - self._sums_s[0], missed_s - self._sums_s[1]
            self._times_s.append((now_s, newly))
            self._sums_s = covered_s, missed_s
        if dropped := max((port.dropped for port in taken), default=0):
            self._dropped.append((now_s, dropped))
        for port in taken:
            if port.dropped:
                self._missed[port.port] = self._missed.get(port.port, 0) + port.dropped
            self._silent_since_s[port.port] = now_s
            self._traffic.append((now_s, (port, self._watched.one_of)))
            self._opaque = self._opaque or bool({"tls", "turns"} & port.connections.keys())
            for report in port.whole:
                self._open[port.port] = report.in_flight or 0, report.oldest_s or 0.0
            for report in getattr(port, self._kind):
                if report.latency is not None:
                    missed = _MISSED * self._missed.pop(port.port, 0)
                    latency = replace(report.latency, missed=missed)
                    reports.append(replace(report, latency=latency))
                    self._measured.append((now_s, latency))
        self._most_open = max(self._most_open, sum(count for count, _ in self._there()))
        # Where it is measured in part, silence there is none of the whole.
        whole = problem is None and self._watched.partial is None
        self._whole = whole and now_s - self._heard_s < SILENT_S
        if self._whole:
            reports += self._silent(now_s)
        return SourceReading(tuple(reports), problem=problem, hides_failures=self._opaque)

    def _silent(self, now_s: float) -> Iterator[Report]:
        """An empty report of each port that is measured, and on which nothing happens."""
        for port in self._watched.found:
            if now_s - self._silent_since_s.setdefault(port, now_s) >= SILENT_S:
                self._silent_since_s[port] = now_s
                yield Report(
                    now_s,
                    writer=f"wire:{port}",
                    latency=LatencySketch(),
                    in_flight=0,
                    oldest_s=0.0,
                    span_s=SILENT_S,
                )

    def beside(self, reports: Iterable[Report], now_s: float) -> None:
        """Latencies that the job reported itself, to compare."""
        self._reported.extend((now_s, one.latency) for one in reports if one.latency is not None)

    def fact(self, now_s: float, *, judges: bool) -> WireFact:
        """What is known of its sockets, renewed every `RATE_S`/2, at first every second. `judges`:
        whether the target is judged by it now."""
        _forget(self._times_s, now_s - RATE_S)
        apart_s = RATE_S / 2 if self._covered_s() >= RATE_S / 2 else SOON_S
        due = now_s - self._fact_s >= apart_s
        problem = self._watched.problem or self._tap.problem
        known = (self._fact.judges, self._fact.problem, self._fact.partial, self._fact.ports)
        if due or known != (judges, problem, self._watched.partial, self._watched.found):
            self._fact_s, self._fact = now_s, self._summary(now_s, problem, judges)
        elif self._yields and now_s - self._decided_s >= SOON_S:
            self._decide(now_s, coarse=self._coarse)
        return self._fact

    def close(self) -> None:
        self._watched.close()

    def _covered_s(self) -> float:
        """The time that rates are of."""
        return max(SOON_S, sum(covered_s for _, (covered_s, _) in self._times_s))

    def _summary(self, now_s: float, problem: str | None, judges: bool) -> WireFact:
        _forget(self._measured, now_s - COMPARED_S)
        _forget(self._reported, now_s - COMPARED_S)
        _forget(self._traffic, now_s - RATE_S)
        _forget(self._dropped, now_s - RATE_S)
        parts = [part for _, part in self._traffic]
        traffic = [one for one, _ in parts]
        over_s = self._covered_s()
        measured = merge(*(one for _, one in self._measured))
        enough = measured.count >= COMPARED_REQUESTS
        reported = None if self.alone else self._contradicting(now_s - COMPARED_S)
        if reported is not None:
            self._contradicted_s = now_s
        self._decide(now_s, coarse=enough and self._too_coarse(measured))
        silent = bool(self._reported) and not any(one.count for _, one in self._reported)
        answers = measured.count
        own, found = sum(one.count for _, one in self._reported), answers * self._watched.one_of
        few = min(own, answers) < FEW_REQUESTS
        self._agrees = not few and max(own, found) <= CLEARLY * min(own, found)
        return WireFact(
            ports=self._watched.found,
            problem=problem,
            partial=self._watched.partial,
            judges=judges,
            requests_per_s=sum(one.arrivals * one_of for one, one_of in parts) / over_s,
            lost=sum(one.lost for one in traffic),
            dropped=sum(packets for _, packets in self._dropped),
            missed_s=sum(missed_s for _, (_, missed_s) in self._times_s),
            one_of=self._watched.one_of,
            connections=_added(one.connections for one in traffic),
            unmeasured=_added(one.unmeasured for one in traffic),
            callers=tuple(
                (name, count / over_s)
                for name, count in _added(
                    {name: count * one_of for name, count in one.callers.items()}
                    for one, one_of in parts
                )
            ),
            unreported=answers if silent and answers >= COMPARED_REQUESTS else 0,
            measured_s=measured_s(measured, self._target.quantile) if enough else None,
            reported_s=reported,
        )

    def _decide(self, now_s: float, *, coarse: bool) -> None:
        """`coarse`: whether its own latencies are too coarse."""
        self._coarse, self._decided_s = coarse, now_s
        if self._yields and self._contradicting(now_s - SOONER_S) is not None:
            self._contradicted_s = now_s
        # In TLS it is not known which answers are failures.
        may_decide = self._yields and not self._opaque and self._whole
        self.decides = may_decide and (coarse or now_s - self._contradicted_s <= DECIDED_S)

    def _contradicting(self, from_s: float) -> Bounds | None:
        """What the job reports of its latency since then, where that contradicts what was measured;
        None: it does not, or too few requests are known."""
        quantile = self._target.quantile
        own = merge(*(one for at_s, one in self._reported if at_s >= from_s))
        measured = merge(*(one for at_s, one in self._measured if at_s >= from_s))
        reported = bounds_of(own, quantile)
        if reported is None or min(own.count, measured.count) < COMPARED_REQUESTS:
            return None
        part = own.count / (measured.count * self._watched.one_of)
        found = _of_a_part(measured, part, quantile)
        if found is None:
            return None
        beyond = self._yields and _beyond(found, reported, self._target.seconds)
        return reported if beyond or _differ(found, reported) else None

    def _too_coarse(self, measured: LatencySketch) -> bool:
        """Whether only the sockets can say on which side of the target its latency is."""
        own = bounds_of(merge(*(one for _, one in self._reported)), self._target.quantile)
        at_sockets = bounds_of(measured, self._target.quantile)
        sides = [one and one.against(self._target.seconds) for one in (own, at_sockets)]
        return own is not None and sides[0] is None and sides[1] is not None


def _of_a_part(measured: LatencySketch, part: float, quantile: float | None) -> Bounds | None:
    """Between which latencies a program finds that counted so many of the measured requests (1:
    all), whichever these are: by a filter, or since it counts at other moments. None: unknown."""
    if quantile is None:
        return bounds_of(measured, None) if abs(part - 1.0) <= SAME_RATIO else None
    if part > 1.0:
        more = math.ceil(measured.count * (part - 1.0))
        return quantile_bounds(replace(measured, missed=measured.missed + more), quantile)
    lowest = quantile_bounds(measured, quantile * part)
    highest = quantile_bounds(measured, min(1.0, quantile * part + 1.0 - part))
    if lowest is None or highest is None:
        return None
    return Bounds(lowest.lowest_s, highest.highest_s)


def _differ(measured: Bounds, reported: Bounds) -> bool:
    """Whether the two cannot both be right, with what a program does not count of itself."""
    below = measured.highest_s < reported.lowest_s / CONTRADICTED_RATIO - CONTRADICTED_S
    return below or measured.lowest_s > reported.highest_s * CONTRADICTED_RATIO + CONTRADICTED_S


def _beyond(measured: Bounds, reported: Bounds, asked_s: float) -> bool:
    """Whether one is in time and the other late by more than the band around a target."""
    late_s = (1.0 + BAND_RATIO) * asked_s
    if reported.highest_s <= asked_s:
        return measured.lowest_s > late_s
    return measured.highest_s <= asked_s and reported.lowest_s > late_s


def _forget(kept: deque[tuple[float, T]], before_s: float) -> None:
    while kept and kept[0][0] < before_s:
        kept.popleft()


def _added(tables: Iterable[Mapping[str, int]]) -> tuple[tuple[str, int], ...]:
    """The sums of these tables, the largest first."""
    whole: dict[str, int] = {}
    for table in tables:
        for key, count in table.items():
            whole[key] = whole.get(key, 0) + count
    return tuple(sorted(whole.items(), key=lambda one: (-one[1], one[0]))[:_CALLERS_SHOWN])

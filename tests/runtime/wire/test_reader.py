"""What is measured at a job's sockets is handed on, and compared with its own reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import LatencySketch, Report
from dlsched.model.spec import LatencyTarget
from dlsched.runtime.wire.reader import SILENT_S, WireReader
from dlsched.runtime.wire.tap import Tap
from dlsched.runtime.wire.traffic import PortTraffic

TARGET = LatencyTarget(0.05, 0.95)


@dataclass
class Socket:
    """Stands in for what the tap watches."""

    found: tuple[int, ...] = (8000,)
    problem: str | None = None
    partial: str | None = None
    one_of: int = 1
    traffic: list[PortTraffic] = field(default_factory=list)
    closed: bool = False
    covered_s: float = 0.0
    missed_s: float = 0.0
    at_s: float | None = None
    """When it was taken last."""
    reports: bool = True
    """Whether the child reports."""

    def take(self, now_s: float) -> tuple[PortTraffic, ...]:
        taken, self.traffic = tuple(self.traffic), []
        if self.reports and self.found:
            self.covered_s += 1.0 if self.at_s is None else now_s - self.at_s
            self.at_s = now_s
        return taken

    def close(self) -> None:
        self.closed = True


@dataclass
class OneSocket:
    socket: Socket
    problem: str | None = None

    def watch(self, *_: object) -> Socket:
        return self.socket


def reader_of(
    socket: Socket, target: LatencyTarget = TARGET, *, yields: bool = False
) -> WireReader:
    return WireReader(cast(Tap, OneSocket(socket)), 7, "c" * 64, (), target, yields=yields)


def traffic(latency: LatencySketch, **others: Any) -> PortTraffic:
    report = Report(0.0, writer="wire:8000", latency=latency)
    whole = PortTraffic(8000, (report,), (), (), arrivals=latency.count)
    return replace(whole, **others)


def hundred(seconds: float) -> LatencySketch:
    return from_latencies([seconds] * 100)


def test_answers_are_handed_on() -> None:
    socket = Socket(traffic=[traffic(hundred(0.011))])
    reading = reader_of(socket).read(5.0)
    assert [one.latency for one in reading.reports] == [hundred(0.011)]
    assert reading.problem is None


@pytest.mark.parametrize(("of", "kind"), [("first-byte", "first"), ("gap", "gaps")])
def test_a_target_may_be_about_another_time(of: Any, kind: str) -> None:
    wanted = Report(0.0, latency=hundred(0.2))
    socket = Socket(traffic=[traffic(hundred(1.5), **{kind: (wanted,)})])
    reader = reader_of(socket, LatencyTarget(0.3, 0.95, of=of))
    assert [one.latency for one in reader.read(5.0).reports] == [hundred(0.2)]
    assert reader.alone


def test_a_silent_port_is_reported_as_silent() -> None:
    reader = reader_of(Socket())
    assert reader.read(0.0).reports == ()
    (silent,) = reader.read(SILENT_S).reports
    assert silent.latency == LatencySketch()
    assert (silent.in_flight, silent.writer) == (0, "wire:8000")
    assert reader.read(SILENT_S + 1).reports == ()


def reports_beside(socket: Socket, own: int, **waiting: Any) -> WireReader:
    """A reader after a second in which a page counted so many requests and the sockets 100."""
    reader = reader_of(socket)
    (report,) = traffic(hundred(0.01)).whole
    socket.traffic = [traffic(hundred(0.01), whole=(replace(report, **waiting),))]
    reader.read(0.0)
    reader.beside((Report(0.0, latency=from_latencies([0.01] * own)),), 0.0)
    reader.fact(0.0, judges=False)
    return reader


@pytest.mark.parametrize(
    ("own", "oldest_s", "socket", "in_flight"),
    [
        (100, 0.5, Socket(), 3),
        (200, 0.5, Socket(one_of=2), 6),
        (50, 0.5, Socket(), None),
        (200, 0.5, Socket(), None),
        (100, 0.5, Socket(partial="not on eth1"), None),
        (100, 0.5, Socket(problem="no right"), None),
        (100, 3600.0, Socket(), None),
    ],
    ids=["all", "a sample", "more at the sockets", "fewer", "in part", "not at all", "a stream"],
)
def test_open_requests_are_known_where_a_page_counts_the_same_ones(
    own: int, oldest_s: float, socket: Socket, in_flight: int | None
) -> None:
    assert reports_beside(socket, own, in_flight=3, oldest_s=oldest_s).in_flight() == in_flight


def test_open_requests_are_forgotten_with_the_process_that_read_them() -> None:
    socket = Socket()
    reader = reports_beside(socket, 100, in_flight=3, oldest_s=0.5)
    socket.missed_s += 1.0
    reader.read(1.0)
    assert reader.in_flight() == 0


def test_of_several_requests_that_were_open_one_is_no_sign_of_a_single_client() -> None:
    socket = Socket()
    reader = reports_beside(socket, 100, in_flight=3, oldest_s=0.5)
    open_ = []
    for now_s, count in enumerate((1, 1, 0), start=1):
        one = Report(0.0, latency=LatencySketch(), in_flight=count)
        socket.traffic = [PortTraffic(8000, (one,))]
        reader.read(float(now_s))
        open_.append(reader.in_flight())
    assert open_ == [3, 1, 0]


def test_a_port_of_which_no_report_comes_is_not_silent() -> None:
    socket = Socket()
    reader = reader_of(socket)
    reader.read(0.0)
    socket.reports = False
    assert reader.read(SILENT_S).reports == ()
    assert reader.read(60.0).reports == ()


def test_rates_are_of_the_time_that_was_measured() -> None:
    socket = Socket(found=(), problem="the container listens on no TCP port")
    reader = reader_of(socket)
    reader.read(0.0)
    reader.read(60.0)
    socket.found, socket.problem, socket.at_s = (8000,), None, 60.0
    socket.traffic = [traffic(hundred(0.01))]
    reader.read(62.0)
    assert reader.fact(62.0, judges=True).requests_per_s == 50.0


def test_what_no_report_will_cover_is_in_the_fact_once() -> None:
    socket = Socket(traffic=[traffic(hundred(0.01))])
    reader = reader_of(socket)
    reader.read(1.0)
    assert reader.fact(1.0, judges=True).missed_s == 0.0
    socket.missed_s += 2.5
    reader.read(2.0)
    assert reader.fact(2.0, judges=True).missed_s == 2.5
    reader.read(13.0)
    assert reader.fact(13.0, judges=True).missed_s == 0.0


def test_a_changed_sample_leaves_the_rate_as_it_was() -> None:
    socket = Socket(at_s=0.0, traffic=[traffic(hundred(0.01), callers={"gateway": 100})])
    reader = reader_of(socket)
    reader.read(0.0)
    socket.one_of, socket.traffic = (
        2,
        [traffic(hundred(0.01), callers={"gateway": 50}, arrivals=50)],
    )
    reader.read(10.0)
    fact = reader.fact(10.0, judges=True)
    assert fact.requests_per_s == 20.0
    assert fact.callers == (("gateway", 20.0),)


def test_dropped_packets_are_in_the_fact_once() -> None:
    two = [traffic(hundred(0.01), dropped=7), traffic(hundred(0.01), port=8001, dropped=7)]
    reader = reader_of(Socket(traffic=two))
    reader.read(1.0)
    assert reader.fact(1.0, judges=True).dropped == 7


@pytest.mark.parametrize(("of", "kind"), [("answer", "whole"), ("gap", "gaps")])
def test_answers_may_be_missing_with_dropped_packets(of: Any, kind: str) -> None:
    reports = (Report(0.0, latency=hundred(0.01)), Report(0.0, latency=hundred(0.02)))
    socket = Socket(traffic=[traffic(hundred(0.01), dropped=3, **{kind: ()})])
    reader = reader_of(socket, LatencyTarget(0.05, 0.95, of=of))
    assert reader.read(1.0).reports == (), "they count with the next report"
    socket.traffic = [traffic(hundred(0.01), dropped=4, **{kind: reports})]
    found = [one.latency for one in reader.read(2.0).reports]
    assert found == [replace(hundred(0.01), missed=14), hundred(0.02)]


def test_a_port_that_is_not_measured_is_not_silent() -> None:
    reader = reader_of(Socket(problem="the container listens on no TCP port"))
    assert reader.read(0.0).problem == "the container listens on no TCP port"
    assert reader.read(60.0).reports == ()


def test_numbers_of_some_interfaces_stay_and_their_silence_says_nothing() -> None:
    why = "packets on eth1 cannot be read: no such device"
    socket = Socket(partial=why, traffic=[traffic(hundred(0.01))])
    reader = reader_of(socket)
    reading = reader.read(0.0)
    assert (len(reading.reports), reading.problem) == (1, None)
    fact = reader.fact(0.0, judges=True)
    assert (fact.problem, fact.partial) == (None, why)
    assert reader.read(60.0).reports == ()


def test_reports_that_differ_from_the_sockets_contradict() -> None:
    socket = Socket(traffic=[traffic(hundred(0.0113))])
    reader = reader_of(socket)
    reader.read(1.0)
    reader.beside([Report(1.0, latency=hundred(0.0978))], 1.0)
    fact = reader.fact(1.0, judges=False)
    assert fact.measured_s == pytest.approx(0.0113, rel=0.02)
    assert fact.reported_s == pytest.approx((0.0978, 0.0978), rel=0.02)


def reported_beside(
    measured: list[float], own: list[float], one_of: int = 1, quantile: float | None = 0.95
) -> bool:
    """Whether what the job reports contradicts what was measured."""
    socket = Socket(one_of=one_of, traffic=[traffic(from_latencies(measured))])
    reader = reader_of(socket, LatencyTarget(0.05, quantile))
    reader.read(1.0)
    reader.beside([Report(1.0, latency=from_latencies(own))], 1.0)
    return reader.fact(1.0, judges=False).reported_s is not None


def test_a_part_of_the_requests_may_be_the_slow_or_the_quick_ones() -> None:
    measured = [0.01] * 800 + [0.2] * 200
    assert not reported_beside(measured, [0.2] * 200), "a filter selects the slow path"
    assert not reported_beside(measured, [0.01] * 800), "or leaves it out"
    assert reported_beside(measured, [0.4] * 200), "none of them took so long"
    assert reported_beside(measured, [0.01] * 1000)
    assert reported_beside(measured, [0.01] * 980), "a page is read some seconds later"


def test_requests_that_the_sockets_did_not_show_may_be_any() -> None:
    assert not reported_beside([0.01] * 800, [0.01] * 800 + [0.2] * 200)
    assert reported_beside([0.2] * 800, [0.01] * 820)


def test_a_sample_of_connections_is_compared_with_all() -> None:
    assert reported_beside([0.01] * 250, [0.2] * 1000, one_of=4)
    assert not reported_beside([0.01] * 250, [0.2] * 1000, one_of=1)


def test_means_are_compared_of_the_same_requests_alone() -> None:
    measured = [0.01] * 800 + [0.2] * 200
    assert reported_beside(measured, [0.2] * 1000, quantile=None)
    assert not reported_beside(measured, [0.2] * 200, quantile=None)


def test_an_interval_around_the_measured_latency_is_no_contradiction() -> None:
    socket = Socket(traffic=[traffic(hundred(0.0113))])
    reader = reader_of(socket)
    reader.read(1.0)
    wide = LatencySketch(100, 1.1, spans=((0.0, 0.1, 100),))
    reader.beside([Report(1.0, latency=wide)], 1.0)
    assert reader.fact(1.0, judges=False).reported_s is None


@pytest.mark.parametrize(
    ("own", "measured_s", "decides"),
    [
        (hundred(0.049), 0.051, False),
        (hundred(0.049), 0.056, True),
        (hundred(0.056), 0.049, True),
        (hundred(0.2), 0.1, True),
        (LatencySketch(100, 1.1, spans=((0.0, 0.1, 100),)), 0.011, True),
        (LatencySketch(100, 1.1, spans=((0.0, 0.05, 100),)), 0.011, False),
    ],
    ids=["as good as equal", "late", "in time", "both late", "too coarse", "fine enough"],
)
def test_sockets_decide_over_times_of_the_same_answers(
    own: LatencySketch, measured_s: float, decides: bool
) -> None:
    for yields in (False, True):
        reader = reader_of(Socket(traffic=[traffic(hundred(measured_s))]), yields=yields)
        reader.read(1.0)
        reader.beside([Report(1.0, latency=own)], 1.0)
        reader.fact(1.0, judges=False)
        assert reader.decides is (yields and decides)


def second(reader: WireReader, socket: Socket, now_s: float, at_sockets: Any, own: Any) -> None:
    """One second in which these latencies were measured, and those reported."""
    socket.traffic = [traffic(from_latencies(at_sockets))]
    reader.read(now_s)
    reader.beside([Report(now_s, latency=from_latencies(own))], now_s)
    reader.fact(now_s, judges=False)


def test_sockets_decide_within_a_second_of_what_shows_a_change() -> None:
    socket = Socket()
    reader = reader_of(socket, yields=True)
    for now_s in range(60):
        second(reader, socket, now_s, [0.01] * 20, [0.01] * 20)
    # A twentieth of 30 seconds is 1.5 seconds of such answers.
    for now_s in (60, 61):
        assert not reader.decides
        second(reader, socket, now_s, [0.06] * 20, [0.01] * 20)
    assert reader.decides


def test_sockets_go_on_to_decide_for_a_while() -> None:
    socket = Socket()
    reader = reader_of(socket, yields=True)
    second(reader, socket, 0, [0.06] * 200, [0.01] * 200)
    found = []
    for now_s in range(1, 70):
        second(reader, socket, now_s, [0.01] * 200, [0.01] * 200)
        found.append(reader.decides)
    assert found == [True] * 48 + [False] * 21, "of 20 seconds, 1 is no more than a twentieth"


@pytest.mark.parametrize(
    "socket",
    [
        Socket(partial="packets on eth1 cannot be read", traffic=[traffic(hundred(0.2))]),
        Socket(traffic=[traffic(hundred(0.2), connections={"tls": 1})]),
        Socket(traffic=[traffic(hundred(0.2))], reports=False),
    ],
    ids=["some interfaces", "failures hidden", "no report from the child"],
)
def test_sockets_that_do_not_show_all_decide_nothing(socket: Socket) -> None:
    reader = reader_of(socket, yields=True)
    reader.read(1.0)
    reader.beside([Report(1.0, latency=hundred(0.04))], 1.0)
    reader.fact(1.0, judges=False)
    assert not reader.decides


def test_without_a_request_at_the_sockets_they_decide_nothing() -> None:
    reader = reader_of(Socket(), yields=True)
    reader.read(1.0)
    reader.beside([Report(1.0, latency=LatencySketch(100, 1.1, spans=((0.0, 0.1, 100),)))], 1.0)
    reader.fact(1.0, judges=False)
    assert not reader.decides


def test_reports_without_a_request_beside_answers_contradict() -> None:
    socket = Socket(traffic=[traffic(hundred(0.01))])
    reader = reader_of(socket)
    reader.read(1.0)
    assert reader.fact(1.0, judges=False).unreported == 0
    reader.beside([Report(1.0, latency=LatencySketch())], 1.0)
    assert reader.fact(7.0, judges=False).unreported == 100


def test_few_requests_contradict_nothing() -> None:
    socket = Socket(traffic=[traffic(from_latencies([0.01] * 20))])
    reader = reader_of(socket)
    reader.read(1.0)
    reader.beside([Report(1.0, latency=hundred(0.2))], 1.0)
    assert reader.fact(1.0, judges=False).reported_s is None


def test_old_reports_are_not_compared() -> None:
    socket = Socket(traffic=[traffic(hundred(0.01))])
    reader = reader_of(socket)
    reader.beside([Report(0.0, latency=hundred(0.2))], 0.0)
    reader.read(100.0)
    assert reader.fact(100.0, judges=False).reported_s is None


def test_rates_count_the_connections_that_are_left_out() -> None:
    socket = Socket(one_of=4, traffic=[traffic(hundred(0.01), callers={"gateway": 100})], at_s=-9.0)
    reader = reader_of(socket)
    reader.read(1.0)
    fact = reader.fact(1.0, judges=True)
    assert fact.requests_per_s == pytest.approx(40.0)
    assert dict(fact.callers) == {"gateway": pytest.approx(40.0)}


def test_the_share_of_measured_connections_is_known() -> None:
    one = traffic(hundred(0.01), connections={"http": 3}, unmeasured={"HTTP/2": 1})
    reader = reader_of(Socket(traffic=[one]))
    reader.read(1.0)
    assert reader.fact(1.0, judges=True).measured_ratio == pytest.approx(0.75)


@pytest.mark.parametrize(("kind", "hides"), [("http", False), ("tls", True), ("turns", True)])
def test_failures_are_hidden_where_only_turns_are_measured(kind: str, hides: bool) -> None:
    reader = reader_of(Socket(traffic=[traffic(hundred(0.01), connections={kind: 1})]))
    assert reader.read(1.0).hides_failures is hides


def test_closing_stops_the_watch() -> None:
    socket = Socket()
    reader_of(socket).close()
    assert socket.closed

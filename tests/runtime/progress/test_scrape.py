"""Asking a container's Prometheus endpoint, with every hostility that a server has."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from dlsched.model.sources import LabelFilter, Metric, MetricsEndpoint
from dlsched.model.spec import AccuracyTarget
from dlsched.runtime.progress import scrape
from dlsched.runtime.progress.http_page import ANSWER_S, PAGE_BYTES, Unanswered, fetch
from dlsched.runtime.progress.scrape import APART_S, ScrapeReader
from dlsched.runtime.progress.sidecar import SourceReading
from tests.waiting import until

pytestmark = pytest.mark.timed

DEADLINE_S = 30.0
Serve = Callable[[socket.socket], None]


class Server:
    """Answers each connection as the test says; counts them."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(DEADLINE_S)
                self.asked.append(connection.recv(65536))
                self.serve(connection)

    def close(self) -> None:
        # Closing alone does not wake who waits in accept.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(DEADLINE_S)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host answers late, and garbage of other tests is collected in a reader's thread: only
    what a test is about is too slow, or costs much."""
    monkeypatch.setattr(scrape, "fetch", partial(fetch, within_s=DEADLINE_S))
    monkeypatch.setattr(scrape, "CPU_RATIO", 1e9)


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server(lambda connection: None)
    yield one
    one.close()


def answer(body: bytes, status: str = "200 OK", *headers: str) -> Serve:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers])
    return lambda connection: connection.sendall(head.encode() + b"\r\n\r\n" + body)


def reader_of(server: Server, name: str = "m", **more: object) -> ScrapeReader:
    endpoint = MetricsEndpoint((server.port,), metrics=(Metric(name=name),))
    return ScrapeReader(lambda _: "127.0.0.1", endpoint, **more)  # type: ignore[arg-type]


def answered(reader: ScrapeReader, now_s: float) -> SourceReading:
    """Ask at that moment, wait for the answer, and take it up."""
    reader.read(now_s)
    until(lambda: not reader.asking, "the answer", every_s=0.005)
    return reader.read(now_s + APART_S / 2)


def test_what_happened_in_between_is_told_with_the_time_of_asking(server: Server) -> None:
    reader = reader_of(server, from_end=True)
    server.serve = answer(b"m_sum 1\nm_count 10\n")
    (first,) = answered(reader, 100.0).reports
    assert first.latency is not None and first.latency.count == 0
    server.serve = answer(b"m_sum 1.5\nm_count 15\n")
    reading = answered(reader, 104.0)
    (told,) = reading.reports
    assert (told.latency.count, told.latency.sum_s) == (5, 0.5)
    assert (told.received_s, told.span_s) == (104.0, 4.0)
    assert (reading.bad_lines, reading.problem) == (0, None)
    assert server.asked[0].startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"Accept-Encoding: identity" in server.asked[0]


def test_it_asks_no_more_than_once_a_second_and_one_at_a_time(server: Server) -> None:
    server.serve = answer(b"m_sum 1\nm_count 10\n")
    reader = reader_of(server)
    answered(reader, 1.0)
    for tenth in range(8):
        reader.read(1.0 + tenth / 10)
    assert len(server.asked) == 1
    answered(reader, 2.0)
    assert len(server.asked) == 2


def test_a_gauge_is_the_targets_metric(server: Server) -> None:
    server.serve = answer(b"trainer_val_acc 0.75\n")
    reader = reader_of(server, "trainer_val_acc", target=AccuracyTarget("accuracy", 0.9, 0.95))
    (told,) = answered(reader, 1.0).reports
    assert told.sample is not None and told.sample.metrics == (("accuracy", 0.75),)
    unnamed = ScrapeReader(
        lambda _: "127.0.0.1",
        MetricsEndpoint((server.port,)),
        AccuracyTarget("trainer_val_acc", 0.9, 0.95),
    )
    (told,) = answered(unnamed, 1.0).reports
    assert told.sample is not None and told.sample.metrics == (("trainer_val_acc", 0.75),)


def test_each_new_value_of_a_gauge_is_an_evaluation(server: Server) -> None:
    reader = reader_of(server, "val_acc", target=AccuracyTarget("accuracy", 0.9, 0.95))
    told = []
    for now_s, value in enumerate(["0.7", "0.7", "0.8", "NaN", "0.8"], 1):
        server.serve = answer(f"val_acc {value}\n".encode())
        reports = answered(reader, 10.0 * now_s).reports
        told += [(one.sample.step, one.sample.metrics, one.sample.diverged) for one in reports]
    values = [(step, dict(metrics).get("accuracy")) for step, metrics, _ in told]
    assert values == [(1, 0.7), (2, 0.8), (3, None), (4, 0.8)]
    assert told[2][2] == (("accuracy", "nan"),)


def test_without_an_address_the_reason_is_said() -> None:
    def nowhere(_: int) -> str:
        raise Unanswered("it has none")

    reading = answered(ScrapeReader(nowhere, MetricsEndpoint((9000,))), 1.0)
    assert reading.problem == "http://container:9000/metrics: it has none"


def test_a_proxy_in_the_environment_is_not_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.serve = answer(b"m_sum 1\nm_count 10\n")
    assert answered(reader_of(server), 1.0).problem is None


def drip(head: bytes) -> Serve:
    def serve(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"m")
            time.sleep(0.02)

    return serve


def silence(connection: socket.socket) -> None:
    connection.recv(1)


def flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"m_count 1\n" * 6000)


def hundred_continues(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


GZIPPED = gzip.compress(b"m_count 1\n" * 10**6)
TOO_LONG = f"the answer has more than {PAGE_BYTES >> 10} KiB"
TOO_SLOW = f"the page was not received whole within {ANSWER_S:g} s"


@pytest.mark.parametrize(
    ("serve", "why"),
    [
        (drip(b"HTTP/1.1 200 OK\r\n\r\n"), TOO_SLOW),
        (drip(b"HTTP/1.1 200 OK\r\nX: "), TOO_SLOW),
        (drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n"), TOO_SLOW),
        (drip(b"HTTP"), TOO_SLOW),
        (silence, TOO_SLOW),
        (flood, TOO_LONG),
        (hundred_continues, "the answer has more than 256 KiB, so it is not read"),
        (
            answer(b"", "302 Found", "Location: http://127.0.0.1:1/"),
            "the page is answered with HTTP status 302",
        ),
        (answer(b"", "500 No"), "the page is answered with HTTP status 500"),
        (answer(GZIPPED, "200 OK", "Content-Encoding: gzip"), "the page has the encoding 'gzip'"),
        (
            answer(b"m_count", "200 OK", "Content-Encoding: \x1b[31m,gzip"),
            "the page has the encoding ",
        ),
        (lambda connection: connection.sendall(b"SSH-2.0-x\r\n"), "not HTTP: "),
        (lambda connection: None, "the connection to the page broke"),
        (answer(b"m", "200 OK", "X: " + "x" * 70_000), "not HTTP: "),
        (answer(b"m", "200 OK", *[f"X{n}: x" for n in range(200)]), "not HTTP: "),
        (
            lambda one: one.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "not HTTP: ",
        ),
        (lambda one: one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nm"), "not HTTP: "),
        (
            lambda one: one.sendall(b"HTTP/1.0 200 OK\r\n\r\nm_sum 1\nm_count 12"),
            "the page ends within a line and has no Content-Length",
        ),
        (answer(b"\xff\xfe\x00m_count 1"), "the page has no metric m"),
    ],
)
def test_a_hostile_server_costs_half_a_second_and_is_said(
    server: Server, monkeypatch: pytest.MonkeyPatch, serve: Serve, why: str
) -> None:
    if why == TOO_SLOW:
        monkeypatch.setattr(scrape, "fetch", fetch)
    server.serve = serve
    reader = reader_of(server)
    began_s = time.monotonic()
    reading = answered(reader, 1.0)
    assert time.monotonic() - began_s < DEADLINE_S
    assert reading.reports == ()
    assert reading.problem is not None and reading.problem.isprintable()
    assert reading.problem.startswith(f"http://127.0.0.1:{server.port}/metrics: {why}")
    assert reader.read(1.6).problem == reading.problem, "it stands until an answer comes"


@pytest.mark.long
def test_reading_waits_for_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "fetch", fetch)
    server.serve = silence
    reader = reader_of(server)
    began_s = time.monotonic()
    for cycle in range(20):
        reader.read(float(cycle))
    assert time.monotonic() - began_s < 10 * ANSWER_S  # and not twenty answers
    assert sum(each.name == "dlsched-scrape" for each in threading.enumerate()) <= 1
    reader.close()
    assert reader.read(100.0).reports == ()


def test_a_fault_of_our_own_is_said_and_ends_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise KeyError("surprise")

    monkeypatch.setattr(scrape, "fetch", fail)
    assert "not understood" in str(answered(reader_of(server), 1.0).problem)


def test_the_first_page_spans_the_time_since_the_start(server: Server) -> None:
    reader = reader_of(server, from_end=False)
    server.serve = answer(b"", "503 Starting")
    assert answered(reader, 10.0).reports == ()
    server.serve = answer(b"m_sum 1\nm_count 10\n")
    (told,) = answered(reader, 40.0).reports
    assert (told.span_s, told.received_s) == (30.0, 40.0)


def test_without_a_thread_it_is_said_and_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server.serve = answer(b"m_sum 1\nm_count 10\n")
    reader = reader_of(server)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert "not asked: can't start new thread" in str(answered(reader, 1.0).problem)
    assert answered(reader, 2.0).problem is None


def test_the_port_that_has_the_metric_is_found(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        unused = gone.getsockname()[1]
    server.serve = answer(b"m_sum 1\nm_count 10\n")
    endpoint = MetricsEndpoint((unused, server.port), metrics=(Metric(name="m"),))
    reader = ScrapeReader(lambda _: "127.0.0.1", endpoint)
    first = answered(reader, 1.0)
    refused = f"http://127.0.0.1:{unused}/metrics: Connection refused"
    assert (first.reports, first.problem) == ((), refused)
    assert answered(reader, 2.0).problem is None
    assert answered(reader, 3.0).problem is None


def test_what_the_program_needs_is_said_where_it_does_not_answer(server: Server) -> None:
    needs = "--enable-metrics"
    endpoint = MetricsEndpoint((server.port,), metrics=(Metric(name="m"),), needs=needs)
    reader = ScrapeReader(lambda _: "127.0.0.1", endpoint)
    server.serve = answer(b"", "404 Not Found")
    assert str(answered(reader, 1.0).problem).endswith("status 404; it needs --enable-metrics")
    server.serve = answer(b"other 1\n")
    assert str(answered(reader, 2.0).problem).endswith("no metric m; it needs --enable-metrics")
    server.serve = answer(b"m_sum 1\nm_count 10\n")
    assert answered(reader, 3.0).problem is None


def test_a_page_that_costs_much_is_asked_for_less_often(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "CPU_RATIO", 1e-9)
    server.serve = answer(b"m_sum 1\nm_count 10\n")
    reader = reader_of(server)
    answered(reader, 1.0)
    reader.read(1.0 + 0.9 * scrape.APART_MAX_S)
    assert len(server.asked) == 1
    answered(reader, 1.0 + 1.1 * scrape.APART_MAX_S)
    assert len(server.asked) == 2


def test_pages_that_are_refused_are_not_part_of_the_next_ones_span(server: Server) -> None:
    metric = Metric(name="m", per="model", where=(LabelFilter("model", "a|b"),))
    endpoint = MetricsEndpoint((server.port,), metrics=(metric,))
    reader = ScrapeReader(lambda _: "127.0.0.1", endpoint, from_end=True)
    two = b'm_sum{model="a"} 1\nm_count{model="a"} 1\nm_sum{model="b"} 1\nm_count{model="b"} 1\n'
    one = b'm_sum{model="a"} 2\nm_count{model="a"} 2\n'
    for now_s, page in ((10.0, one), (20.0, two), (30.0, one), (40.0, one)):
        server.serve = answer(page)
        reports = answered(reader, now_s).reports
    assert [report.span_s for report in reports] == [10.0]

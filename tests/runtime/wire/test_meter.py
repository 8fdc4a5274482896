"""What the meter makes of packets whose truth is known, rule by rule of what is measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from dlsched.runtime.wire import meter as meters
from dlsched.runtime.wire.connection import (
    BEFORE,
    EARLY,
    HTTP2,
    HTTP2_IN_TLS,
    NO_REQUEST,
    PIPELINED,
    SHORT_TLS,
    STARTTLS,
    TUNNEL,
    UPGRADED,
)
from dlsched.runtime.wire.meter import Meter
from tests.runtime.wire.packets import (
    ACK,
    CLIENT,
    SERVER,
    START_NS,
    SYN,
    Packet,
    Snap,
    Talk,
    block,
    client_hello,
    filtered,
    merged,
    record,
    tcp,
    whole,
)

GET = b"GET /predict HTTP/1.1\r\nHost: a\r\n\r\n"
LONG_GET = b"GET /predict HTTP/1.1\r\nHost: a\r\nCookie: " + b"c" * 400 + b"\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG_HEAD = b"HTTP/1.1 200 OK\r\nSet-Cookie: " + b"c" * 1500 + b"\r\nContent-Length: 5\r\n\r\n"


def answer(body: bytes = b"hello", status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


def post(size: int, sent: bytes = b"", extra: str = "") -> bytes:
    return f"POST /x HTTP/1.1\r\nContent-Length: {size}\r\n{extra}\r\n".encode() + sent


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


class Measured:
    """A meter of port 8000, fed with packets; what it reports of that port."""

    def __init__(self, *talks: Talk, snap: Snap = filtered, skip: str = "") -> None:
        self.meter = Meter()
        self.meter.watch({0: {8000: 1}}, {1: skip} if skip else {})
        self.snap = snap
        self.feed(merged(talks))

    def feed(self, packets: Iterable[Packet], ring: int = 0) -> None:
        for packet in packets:
            self.meter.block(ring, block([packet], self.snap))

    def report(self, at_ms: float = 0.0) -> dict[str, Any]:
        late_ms = 1e3 * meters.RETIRE_S
        self.all = self.meter.report(START_NS + round(1e6 * (at_ms + late_ms)))
        empty = {"count": 0, "sum": 0.0, "errors": 0, "in_flight": 0}
        nothing = {"whole": empty, "first": empty, "gaps": empty, "arrivals": 0, "lost": 0}
        nothing |= {"connections": {}, "unmeasured": {}, "callers": {}}
        return self.all["ports"].get("1", nothing)


def counted(*talks: Talk, snap: Snap = filtered, skip: str = "") -> dict[str, Any]:
    return Measured(*talks, snap=snap, skip=skip).report()


def ms(report: dict[str, Any], kind: str = "whole") -> tuple[int, float]:
    """How many were counted, and their sum in milliseconds."""
    return report[kind]["count"], pytest.approx(1e3 * report[kind]["sum"], abs=1e-6)


def unmeasured(*talks: Talk, snap: Snap = filtered) -> dict[str, int]:
    report = counted(*talks, snap=snap)
    assert report["whole"]["count"] == report["first"]["count"] == 0
    return report["unmeasured"]


# ------------------------------------------------------------------ one connection


Said = tuple[Any, ...]
UNSEEN = object()
"""At the end of what is said: it was sent, but not captured."""


def talk_of(*said: Said) -> Talk:
    """A connection on which this is said: who does what, in which millisecond, and the bytes."""
    talk = Talk()
    for what, at_ms, *bytes_ in said:
        options = {"unseen": True} if UNSEEN in bytes_ else {}
        getattr(talk, what)(at_ms, *(one for one in bytes_ if one is not UNSEEN), **options)
    return talk


OPENS: Said = ("opens", 0)
POST_3000 = ("asks", 1, post(3000, b"x" * 1000))
LOST_END = CHUNKED + chunk(b"x" * 2000) + chunk(b"y" * 50)
"""An answer in chunks, of which the end is cut off."""


@pytest.mark.parametrize(
    ("said", "counts"),
    [
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 5, answer(b"x" * 9000, length=30000)),
                ("answers", 9, b"y" * 20000), ("answers", 20, b"z" * 1000),
            ],
            {"whole": (1, 19.0), "first": (1, 4.0), "gaps": (2, 15.0)},
            id="an answer ends at its length though its body is cut off",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 16, CHUNKED),
                ("answers", 1518, chunk(b"token")), ("answers", 1548, chunk(b"token")),
                ("answers", 1560, b"0\r\n\r\n"),
            ],
            {"whole": (1, 1559.0), "first": (1, 1517.0), "gaps": (1, 30.0)},
            id="neither the head alone nor the end of the chunks is a token",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 5, CHUNKED + b"5000\r\n" + b"x" * 4000),
                ("answers", 7, b"x" * (0x5000 - 4000)),
                ("answers", 9, b"\r\n" + chunk(b"more") + b"0\r\n\r\n"),
            ],
            {"whole": (1, 8.0)},
            id="a large chunk is skipped by its size",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 5, LOST_END), ("answers", 6, chunk(b"z")),
                ("answers", 9, chunk(b"z")), ("answers", 12, b"0\r\n\r\n"),
            ],
            {"whole": (1, 11.0), "first": (1, 4.0), "gaps": (1, 3.0)},
            id="a packet of one chunk shows where chunks are again",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET),
                ("answers", 5, CHUNKED + chunk(b"x" * 2000) + b"0\r\n\r\n"), ("server_ends", 60),
            ],
            {"whole": (1, 4.0), "lost": 0},
            id="one chunk of which the end is cut off ends with the connection",
        ),
        pytest.param(
            [OPENS, ("asks", 1, GET), ("answers", 5, LOST_END), ("server_ends", 60)],
            {"whole": (0, 0.0), "lost": 1},
            id="of several chunks it may not be all",
        ),
        pytest.param(
            [OPENS, ("asks", 1, GET), ("answers", 5, answer(b"hello, you", length=5))],
            {"whole": (1, 4.0), "unmeasured": {PIPELINED: 1}},
            id="an answer longer than it said ends the measuring",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 5, LONG_HEAD + b"hel"), ("answers", 9, b"lo"),
                ("asks", 100, GET), ("answers", 110, answer()),
            ],
            {"whole": (2, 18.0), "first": (1, 10.0), "gaps": (0, 0.0)},
            id="a head beyond what is captured has no first byte",
        ),
        pytest.param(
            [
                OPENS, POST_3000, ("asks", 400, b"GET / HTTP/1.1\r\n".ljust(1000, b"x")),
                ("asks", 900, b"x" * 1000), ("answers", 950, answer()),
            ],
            {"whole": (1, 50.0)},
            id="an upload counts from its last byte",
        ),
        pytest.param(
            [OPENS, POST_3000, ("answers", 2, answer(status="401 No"))],
            {"whole": (0, 0.0), "lost": 1, "unmeasured": {EARLY: 1}},
            id="an upload answered early is not measured",
        ),
        pytest.param(
            [OPENS, POST_3000, ("answers", 2, answer(status="503 No"))],
            {"whole": (0, 0.0), "failed": 1},
            id="but a failure of it is one",
        ),
        pytest.param(
            [OPENS, POST_3000, ("answers", 2, answer(b"x", length=5)), ("asks", 3, b"x" * 1000)],
            {"whole": (0, 0.0), "unmeasured": {EARLY: 1}},
            id="an upload that goes on while it is answered",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, LONG_GET + LONG_GET), ("answers", 5, answer()),
                ("answers", 9, answer()), ("asks", 100, GET), ("answers", 101, answer()),
            ],
            {"whole": (1, 4.0), "unmeasured": {PIPELINED: 1}},
            id="a request ahead that was cut off shows by its answer",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 5, LOST_END), ("asks", 6, GET),
                ("answers", 900, b"z" * 300),
            ],
            {"whole": (0, 0.0), "lost": 2},
            id="an answer cut off is not ended by a request ahead",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 2, answer()), ("asks", 3, b"\r\n"),
                ("asks", 4, GET), ("answers", 5, answer()),
            ],
            {"whole": (2, 2.0), "unmeasured": {}},
            id="an empty line may follow a request",
        ),
        pytest.param(
            [OPENS, ("asks", 1, GET), ("answers", 2, answer()), ("asks", 6, b"\0\1 no HTTP")],
            {"whole": (1, 1.0), "unmeasured": {NO_REQUEST: 1}},
            id="what is no request ends the measuring",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
                ("answers", 2, b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), ("asks", 3, GET),
                ("answers", 4, answer()),
            ],
            {"whole": (0, 0.0), "first": (0, 0.0), "unmeasured": {UPGRADED: 1}},
            id="an upgraded connection is not measured",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 3, answer()),
                ("asks", 4, b"CONNECT a:443 HTTP/1.1\r\n\r\n"),
            ],
            {"whole": (1, 2.0), "unmeasured": {TUNNEL: 1}},
            id="a later tunnel is not measured",
        ),
        pytest.param(
            [OPENS, ("asks", 1, GET), ("answers", 5, LOST_END), ("client_resets", 9)],
            {"whole": (0, 0.0), "failed": 0, "lost": 1},
            id="a reset while the end is unseen is lost",
        ),
        pytest.param(
            [("syn", 0), ("server_resets", 1)],
            {"arrivals": 1, "failed": 1},
            id="a refused connection is a failure",
        ),
        pytest.param(
            [("syn", 0), ("client_resets", 1)],
            {"arrivals": 0, "failed": 0},
            id="a client that does not want its connection any more is none",
        ),
        pytest.param(
            [OPENS, ("asks", 1, GET), ("answers", 5, answer() + answer())],
            {"whole": (1, 4.0), "unmeasured": {PIPELINED: 1}},
            id="two answers at once are to two requests",
        ),
        pytest.param(
            [OPENS, ("asks", 1, GET), ("answers", 5, CHUNKED + 2 * (chunk(b"x") + b"0\r\n\r\n"))],
            {"whole": (1, 4.0), "unmeasured": {PIPELINED: 1}},
            id="so is what follows the last chunk",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET),
                ("answers", 5, b"HTTP/1.1 304 Not Modified\r\n\r\n" + answer()),
            ],
            {"whole": (1, 4.0), "unmeasured": {PIPELINED: 1}},
            id="and what follows an answer without a body",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, GET), ("answers", 5, answer()), ("server_ends", 5000),
                ("asks", 5000.1, GET), ("server_resets", 5000.2),
            ],
            {"whole": (1, 4.0), "failed": 1, "arrivals": 2},
            id="a request behind the server's end fails",
        ),
        pytest.param(
            [
                ("syn", 0), ("syn_again", 1000), ("syn_again", 3000), ("accepts", 3001),
                ("asks", 3002, GET), ("answers", 3012, answer()), ("asks", 4000, GET),
                ("answers", 4010, answer()),
            ],
            {"whole": (2, 3021.0), "first": (2, 3021.0)},
            id="the first request waits for its connection",
        ),
        pytest.param(
            [("syn", 0), ("accepts", 2), ("asks", 60000, GET), ("answers", 60010, answer())],
            {"whole": (1, 12.0)},
            id="a connection made ahead does not wait",
        ),
        pytest.param(
            [
                ("syn", 0), ("accepts", 5, UNSEEN), ("asks", 10, GET), ("answers", 15, answer()),
                ("asks", 20, GET), ("answers", 23, answer()),
            ],
            {"whole": (1, 3.0), "lost": 1, "arrivals": 2},
            id="a request whose connecting was not seen is lost",
        ),
        pytest.param(
            [
                ("syn", 0), ("accepts", 1), ("syn_again", 1000), ("asks", 1001, GET),
                ("answers", 1011, answer()),
            ],
            {"whole": (1, 11.0)},
            id="a repeated syn does not begin again",
        ),
        pytest.param(
            [
                ("asks", 1, b"x" * 500), ("answers", 2, answer()), ("asks", 3, GET),
                ("answers", 7, answer()), ("asks", 8, GET),
            ],
            {"whole": (1, 4.0), "arrivals": 2, "lost": 1},
            id="a connection joined in the middle is known by its next request",
        ),
        pytest.param(
            [
                ("answers", 2, b"+OK\r\n"), ("asks", 3, b"*1\r\n$4\r\nPING\r\n"),
                ("answers", 7, b"+PONG\r\n"),
            ],
            {"whole": (0, 0.0), "first": (0, 0.0), "unmeasured": {BEFORE: 1}},
            id="another protocol joined in the middle is not measured",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, bytes(8)), ("asks", 3, client_hello()),
                ("answers", 4, record(22, bytes(100))), ("asks", 5, record(23, bytes(100))),
            ],
            {"whole": (0, 0.0)},
            id="tls that begins within what a client says",
        ),
        pytest.param(
            [OPENS, ("asks", 1, bytes(8)), ("answers", 2, b"S"), ("asks", 3, client_hello())],
            {"whole": (0, 0.0), "first": (0, 0.0), "unmeasured": {STARTTLS: 1}},
            id="tls that begins within a connection",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, b"\1" * 50), ("answers", 4, b"x"), ("asks", 5, b"\1quit"),
                ("server_ends", 6),
            ],
            {"whole": (1, 3.0), "failed": 0},
            id="a word of farewell without an answer is no failure",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, b"\1subscribe"), ("answers", 4, b"x"),
                ("answers", 40_000, b"notice"), ("asks", 50_000, b"\1ping"),
            ],
            {"whole": (0, 0.0), "lost": 1},
            id="what a server sends long after is no answer",
        ),
        pytest.param(
            [
                OPENS, ("asks", 1, b"\1some"), ("answers", 4, b"x"), ("answers", 9, b"y", UNSEEN),
                ("asks", 20, b"\1some"), ("answers", 22, b"x"), ("server_ends", 30),
            ],
            {"whole": (1, 2.0), "lost": 1, "arrivals": 2},
            id="a turn of which the end is missing is lost",
        ),
    ],
)  # fmt: skip
def test_what_is_counted_of_a_connection(said: Sequence[Said], counts: dict[str, Any]) -> None:
    report = counted(talk_of(*said))
    found = {kind: ms(report, kind) for kind in ("whole", "first", "gaps")}
    found |= {"failed": report["whole"]["errors"]}
    assert {name: found.get(name, report.get(name)) for name in counts} == counts


# ------------------------------------------------------------------ answers in HTTP/1


@pytest.mark.parametrize("ipv6", [False, True])
def test_requests_of_a_kept_connection_count_one_by_one(ipv6: bool) -> None:
    talk = Talk(ipv6=ipv6).opens()
    for turn in range(3):
        talk.asks(100.0 * turn + 1, GET)
        talk.answers(100.0 * turn + 11 + turn, answer())
    report = counted(talk)
    assert ms(report) == ms(report, "first") == (3, 33.0)
    assert (report["arrivals"], report["lost"]) == (3, 0)
    assert report["connections"] == {"http": 1} and not report["unmeasured"]
    assert report["callers"] == {"fd00::9" if ipv6 else "10.0.0.9": 3}


def test_a_client_of_the_host_is_known_by_its_port() -> None:
    talks = [Talk(local=True, ipv6=six, client_port=41000 + six).opens() for six in (False, True)]
    for talk in talks:
        talk.asks(1, GET)
    assert counted(*talks)["callers"] == {":41000": 1, ":41001": 1}


def test_chunks_cut_off_end_when_the_client_speaks_again() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, CHUNKED + chunk(b"x" * 2000) + chunk(b"y" * 50))
    talk.answers(9, chunk(b"z" * 2000) + b"0\r\n\r\n")
    talk.asks(100, GET)
    measured = Measured(talk)
    assert measured.report()["whole"]["count"] == 0, "until the next answer shows it"
    talk.packets.clear()
    talk.answers(103, answer())
    measured.feed(talk.packets)
    assert ms(measured.report()) == (2, 11.0)


def test_a_body_of_gigabytes_is_not_whole_at_its_first_packet() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, answer(b"x", length=3 << 30))
    measured = Measured(talk)
    report = measured.report(50)
    assert (report["whole"]["count"], report["whole"]["in_flight"]) == (0, 1)


def test_two_lengths_are_none() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\nhi")
    measured = Measured(talk)
    assert measured.report()["whole"]["count"] == 0
    assert not measured.meter.report(START_NS)["ports"].get("1", {}).get("lost")


# ------------------------------------------------------------------ requests in HTTP/1


def test_a_request_of_unknown_length_counts_when_another_follows() -> None:
    def begun() -> tuple[Talk, Measured]:
        talk = Talk().opens()
        talk.asks(1, post(900, b"x" * 400, extra="Cookie: " + "c" * 300 + "\r\n"))
        talk.asks(3, b"x" * 500)
        talk.answers(10, answer())
        measured = Measured(talk)
        assert measured.report()["whole"]["count"] == 0
        talk.packets.clear()
        return talk, measured

    talk, measured = begun()
    talk.asks(100, GET)
    measured.feed(talk.packets)
    assert ms(measured.report()) == (1, 7.0)
    talk, measured = begun()
    talk.client_ends(100)
    measured.feed(talk.packets)
    assert ms(measured.report()) == (1, 7.0)
    talk, measured = begun()
    talk.asks(100, b"x" * 100)
    measured.feed(talk.packets)
    report = measured.report()
    assert (report["whole"]["count"], report["lost"], report["unmeasured"]) == (0, 1, {EARLY: 1})


def test_paths_that_do_not_count_leave_no_trace() -> None:
    talk = Talk().opens()
    talk.asks(1, b"GET /health?x=1 HTTP/1.1\r\n\r\n")
    talk.answers(500, answer(status="503 No"))
    talk.asks(1001, GET)
    talk.answers(1003, answer())
    talk.asks(2001, b"GET http://a:8000/health HTTP/1.1\r\n\r\n")
    report = counted(talk, skip="/health|/metrics")
    assert (ms(report), report["arrivals"], report["whole"]["errors"]) == ((1, 2.0), 1, 0)
    assert report["whole"]["in_flight"] == 0


def test_a_path_that_only_begins_so_counts() -> None:
    talk = Talk().opens()
    for at, part in enumerate((b"GET /hea", b"lthy HTTP/1.1\r\n\r\n")):
        talk.asks(1 + at, part)
    talk.answers(5, answer())
    assert ms(counted(talk, skip="/hea|/health")) == (1, 3.0)


# ------------------------------------------------------------------ what is not measured


def test_requests_sent_ahead_are_not_measured() -> None:
    twice = Talk(client_port=1).opens()
    twice.asks(1, GET + GET)
    ahead = Talk(client_port=2).opens()
    ahead.asks(1, GET)
    ahead.asks(2, GET)
    while_answered = Talk(client_port=3).opens()
    while_answered.asks(1, GET)
    while_answered.answers(2, answer(b"x", length=9))
    while_answered.asks(3, GET)
    behind_upload = Talk(client_port=4).opens()
    behind_upload.asks(1, post(5, b"hello" + GET))
    report = counted(twice, ahead, while_answered, behind_upload)
    assert report["unmeasured"] == {PIPELINED: 4}
    assert report["connections"] == {"http": 0}
    assert (report["whole"]["count"], report["lost"]) == (0, 4)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(60), HTTP2),
        (b"CONNECT a:443 HTTP/1.1\r\n\r\n", TUNNEL),
        (client_hello(b"h2", b"http/1.1"), HTTP2_IN_TLS),
        (client_hello(extra=900), HTTP2_IN_TLS),
        (record(23, bytes(100)), HTTP2_IN_TLS),
        (b"\x16", HTTP2_IN_TLS),
    ],
)
def test_protocols_with_many_requests_are_not_measured(said: bytes, why: str) -> None:
    talk = Talk().opens()
    talk.asks(1, said)
    talk.answers(2, b"something")
    talk.asks(3, b"something else that is long enough for a request")
    talk.answers(5, b"something")
    assert unmeasured(talk) == {why: 1}


# ------------------------------------------------------------------ failures


@pytest.mark.parametrize("status", ["500 No", "503 No", "408 No", "429 No", "499 No"])
def test_an_answer_of_failure_is_no_latency(status: str) -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, answer(status=status))
    report = counted(talk)
    assert (report["whole"]["count"], report["whole"]["errors"]) == (0, 1)
    assert report["first"]["errors"] == report["gaps"]["errors"] == 1


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", answer(length=100), CHUNKED + b"5\r\nhel"])
@pytest.mark.parametrize("end", ["client_resets", "server_resets", "server_ends"])
def test_a_connection_that_ends_before_the_answer_fails(said: bytes, end: str) -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    if said:
        talk.answers(5, said)
    getattr(talk, end)(9)
    talk.client_ends(10)
    report = counted(talk)
    assert (report["whole"]["count"], report["whole"]["errors"], report["lost"]) == (0, 1, 0)


def test_a_client_that_says_no_more_still_gets_its_answer() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.client_ends(2)
    talk.answers(9, answer(b"hel", length=5))
    talk.answers(11, b"lo")
    talk.server_ends(12)
    measured = Measured(talk)
    assert ms(measured.report()) == (1, 10.0)
    assert measured.all["followed"] == 0


# ------------------------------------------------------------------ the way to the server


def test_a_client_that_asks_again_to_connect_is_in_flight() -> None:
    talk = Talk()
    talk.syn(0)
    talk.syn_again(1000)
    measured = Measured(talk)
    report = measured.report(2500)
    assert report["whole"]["in_flight"] == report["first"]["in_flight"] == 1
    assert report["whole"]["oldest_s"] == pytest.approx(2.5)
    report = measured.report(5000)
    assert (report["arrivals"], report["whole"]["errors"]) == (1, 1), "it would have asked again"
    assert measured.all["followed"] == 0


def test_a_port_used_again_is_another_connection() -> None:
    first, second = Talk().opens(), Talk(seqs=[900000, 7000]).opens(100)
    first.asks(1, GET)
    second.asks(101, GET)
    second.answers(106, answer())
    report = counted(first, second)
    assert (ms(report), report["arrivals"], report["lost"]) == ((1, 5.0), 2, 1)


# ------------------------------------------------------------------ packets again, late, missing


def talk_of_uploads() -> Talk:
    talk = Talk().opens()
    for turn in range(3):
        at = 100.0 * turn
        talk.asks(at + 1, post(2000, b"a" * 1000))
        talk.asks(at + 2, b"b" * 1000)
        talk.answers(at + 12, answer(b"c" * 900, length=2000))
        talk.answers(at + 15, b"d" * 600)
        talk.answers(at + 19, b"e" * 500)
    return talk


def test_packets_sent_again_change_nothing() -> None:
    for number in range(len(talk_of_uploads().packets)):
        talk = talk_of_uploads()
        packet = talk.packets[number]
        talk.again(1e-6 * (packet.ns - START_NS) + 0.4, packet)
        talk.again(1e-6 * (packet.ns - START_NS) + 60.4, packet)
        report = counted(talk)
        assert (ms(report), ms(report, "first")) == ((3, 51.0), (3, 30.0)), number
        assert ms(report, "gaps") == (6, 21.0)
        assert (report["lost"], report["arrivals"]) == (0, 3)


def test_a_packet_that_overlaps_counts_for_what_is_new() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, answer(b"hel", length=5))
    last = talk.answers(9, b"lo")
    talk.packets.remove(last)
    talk._send(9, 1, b"hello", ACK, False, seq=last.seq - 3)
    talk.asks(11, GET)
    talk.answers(12, answer())
    report = counted(talk)
    assert (ms(report), report["lost"]) == ((2, 9.0), 0)


def test_a_missing_packet_costs_at_most_its_request() -> None:
    number = len(talk_of_uploads().packets)
    for missing in range(number):
        talk = talk_of_uploads()
        del talk.packets[missing]
        talk.asks(900, GET)
        report = Measured(talk).report(1000)
        assert report["whole"]["count"] >= 2, missing
        waiting = report["whole"]["in_flight"]
        assert report["whole"]["count"] + report["lost"] + waiting == 4, missing
        expected = [17.0] * report["whole"]["count"]
        assert 1e3 * report["whole"]["sum"] == pytest.approx(math.fsum(expected)), missing
        assert {round(1e3 * one) for one in sums(report, "first")} <= {0, 10, 20, 30}, missing


def sums(report: dict[str, Any], kind: str) -> Sequence[float]:
    return [report[kind]["sum"]]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("unseen", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("ends", "second"),
    [
        ("server", ""),
        ("client", ""),
        ("reset", ""),
        ("client", "cut in two"),
        ("client", "unseen"),
        ("asks", "unseen"),
    ],
)
def test_the_rest_of_a_missed_exchange_answers_no_request_behind_it(
    opened: bool, unseen: tuple[bool, bool], ends: str, second: str
) -> None:
    talk = Talk()
    if opened:
        talk.opens()
    talk.asks(1, GET, unseen=unseen[0])
    talk.answers(2, b"HTTP/1.1 100 Continue\r\n\r\n", unseen=unseen[1])
    talk.asks(3, GET)
    talk.answers(10, answer(b"x" * 900, length=1800))
    talk.answers(11, b"x" * 900)
    if ends == "client":
        talk.client_ends(12)
    if second:
        begin = 2 if second == "cut in two" else 0
        talk.answers(14, answer()[:begin], unseen=not begin)
        talk.answers(15, answer()[begin:], unseen=not begin)
    if ends == "reset":
        talk.client_resets(20)
    elif ends == "asks":
        talk.asks(20, GET)
    else:
        talk.server_ends(20)
        talk.client_ends(21)
    report = counted(talk)
    counts = [report[name]["count"] for name in ("whole", "first", "gaps")]
    assert (counts, report["lost"] > 0) == ([0, 0, 0], True)


def test_a_request_whose_answer_was_missed_does_not_go_on_in_the_next_one() -> None:
    talk = Talk().opens(0, took_ms=5)
    talk.asks(10, LONG_GET[:10])
    rest = talk.asks(11, LONG_GET[10:], unseen=True)
    talk.answers(15, answer(), unseen=True)
    begun = talk.asks(20, LONG_GET[:3], unseen=True)
    talk._send(20, 0, rest.payload + begun.payload, ACK, False, seq=rest.seq)
    talk.asks(21, LONG_GET[3:])
    talk.answers(30, answer())
    talk.asks(40, GET)
    report = counted(talk)
    assert (report["whole"]["count"], report["lost"]) == (0, 1)


def test_sequence_numbers_pass_their_end() -> None:
    talk = Talk(seqs=[2**32 - 40, 2**32 - 60]).opens()
    for turn in range(3):
        talk.asks(100 * turn + 1, GET)
        talk.answers(100 * turn + 5, answer(b"x" * 30))
    assert ms(counted(talk)) == (3, 12.0)


def test_a_chunk_with_a_missing_packet_inside_is_followed() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, CHUNKED + b"1000\r\n" + b"x" * 1000)
    talk.answers(6, b"x" * 2000, unseen=True)
    talk.answers(7, b"x" * (0x1000 - 3000) + b"\r\n0\r\n\r\n")
    report = counted(talk, snap=whole)
    assert (ms(report), ms(report, "gaps")) == ((1, 6.0), (0, 0.0))


# ------------------------------------------------------------------ clocks, tables, interfaces


def test_a_clock_set_back_makes_no_latency_below_zero() -> None:
    talk = Talk().opens()
    talk.asks(3000, GET)
    measured = Measured(talk)
    talk.packets.clear()
    talk.answers(2995, answer())
    measured.feed(talk.packets)
    report = measured.report()
    assert (report["whole"]["count"], report["lost"]) == (0, 1)


def test_packets_seen_on_two_interfaces_count_once() -> None:
    measured = Measured()
    measured.meter.watch({0: {8000: 1}, 1: {8000: 1}}, {})
    talks = [Talk(client_port=1).opens(), Talk(client_port=2).opens()]
    for talk in talks:
        talk.asks(1, GET)
        talk.answers(5, answer())
        talk.client_ends(6)
    talks[0].server_ends(7)
    for ring in (0, 1):
        measured.feed(merged(talks), ring)
    report = measured.report()
    assert (ms(report), report["arrivals"], report["connections"]) == ((2, 8.0), 2, {"http": 2})


def test_connections_of_an_interface_that_is_gone_are_known_by_another() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, answer())
    measured = Measured(talk)
    measured.meter.watch({1: {8000: 1}}, {})
    talk.packets.clear()
    talk.asks(11, GET)
    talk.answers(13, answer())
    talk.asks(21, GET)
    measured.feed(talk.packets, 1)
    assert ms(measured.report()) == (2, 6.0)


def test_a_full_table_gives_up_those_silent_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "CONNECTIONS_MAX", 100)
    monkeypatch.setattr(meters, "EVICTED_AT_A_TIME", 10)
    talks = [Talk(client_port=1000 + number).opens(number) for number in range(105)]
    for number, talk in enumerate(talks):
        talk.asks(number + 0.5, GET)
    talks[0].answers(99, answer())
    talks[0].asks(99.5, GET)
    measured = Measured(*talks)
    report = measured.report(1000)
    assert measured.all["followed"] == 95
    followed = {key[-4] << 8 | key[-3] for key in measured.meter._table}
    assert followed & set(range(1000, 1011)) == {1000}
    assert (report["lost"], report["whole"]["in_flight"]) == (10, 95)


def test_a_flood_of_spoofed_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "CONNECTIONS_MAX", 50)
    measured = Measured()
    for number in range(2000):
        host = f"10.1.{number >> 8}.{number & 255}"
        data = tcp((host, 5000), (SERVER, 8000), number, 0, SYN)
        measured.feed([Packet(START_NS + number, data, True, b"")])
        data = tcp((host, 5000), (SERVER, 8000), number + 1, 0, ACK, GET)
        measured.feed([Packet(START_NS + number, data, True, GET)])
    report = measured.report()
    assert measured.all["followed"] <= 50
    assert len(report["callers"]) == 65
    assert sum(report["callers"].values()) == report["arrivals"] == 2000


def test_one_request_in_minutes_is_measured() -> None:
    talk = Talk().opens()
    measured = Measured(talk)
    for at_ms in (1, 300_000, 600_000):
        talk.asks(at_ms, GET)
        talk.answers(at_ms + 4, answer())
        measured.feed(talk.packets)
        talk.packets.clear()
        assert ms(measured.report(at_ms + 50)) == (1, 4.0)


def test_silent_connections_are_forgotten() -> None:
    idle, waiting = Talk(client_port=1).opens(), Talk(client_port=2).opens()
    waiting.asks(1, GET)
    measured = Measured(idle, waiting)
    measured.report(121_000)
    measured.report(132_000)
    assert measured.all["followed"] == 1
    report = measured.report(3_700_000)
    assert (measured.all["followed"], report["lost"]) == (0, 1)


def test_one_that_one_side_has_ended_is_forgotten_sooner() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    talk.answers(5, answer())
    talk.client_ends(6)
    measured = Measured(talk)
    measured.report(100)
    assert measured.all["followed"] == 1
    measured.report(130_000)
    assert measured.all["followed"] == 0


def test_packets_that_contradict_themselves_are_counted() -> None:
    good = tcp((CLIENT, 1), (SERVER, 8000), 0, 0, SYN)
    measured = Measured()
    bad = [good[:30], b"", good[:12] + bytes(8), b"\x42" + good[1:], b"\x95" + good[1:]]
    bad += [good[:2] + b"\xff\xff" + good[4:], good[:32] + b"\x10" + good[33:]]
    bad += [good[:2] + b"\0\x15" + good[4:]]
    measured.feed(Packet(START_NS, one, True, b"") for one in bad)
    assert measured.meter.report(START_NS)["bad"] >= len(bad) - 1


def test_a_packet_larger_than_its_header_can_say_is_read() -> None:
    for ipv6 in (False, True):
        talk = Talk(ipv6=ipv6).opens()
        talk.asks(1, GET)
        talk.answers(5, answer(b"x" * 90_000))
        assert ms(counted(talk)) == (1, 4.0)


def test_options_of_the_network_header_are_skipped() -> None:
    measured = Measured()
    data = tcp((CLIENT, 1), (SERVER, 8000), 0, 0, ACK, GET, ip_options=b"\x01" * 8)
    measured.feed([Packet(START_NS, data, True, GET)])
    assert measured.report()["arrivals"] == 1


# ------------------------------------------------------------------ ages of what is open


def test_ages_are_of_what_is_waited_for() -> None:
    talk = Talk().opens()
    talk.asks(1, GET)
    measured = Measured(talk)

    def ages(at_ms: float) -> list[float | None]:
        report = measured.report(at_ms)
        return [report[kind].get("oldest_s") for kind in ("whole", "first", "gaps")]

    def say(at_ms: float, payload: bytes) -> None:
        talk.packets.clear()
        talk.answers(at_ms, payload)
        measured.feed(talk.packets)

    assert ages(101) == [pytest.approx(0.1), pytest.approx(0.1), None]
    say(110, CHUNKED)
    assert ages(201) == [pytest.approx(0.2), pytest.approx(0.2), None]
    say(210, chunk(b"token"))
    assert ages(301) == [pytest.approx(0.3), None, pytest.approx(0.091)]
    say(310, chunk(b"x" * 2000) + chunk(b"y"))
    assert ages(401) == [None, None, None], "where it ends is not seen"
    say(410, b"0\r\n\r\n")
    assert ages(501) == [None, None, None]


# ------------------------------------------------------------------ TLS and other protocols


def talk_in_tls(port: int = 40000, *, tls12: bool = False) -> Talk:
    """A handshake and three requests of 10 ms."""
    talk = Talk(client_port=port).opens()
    talk.asks(1, client_hello(b"http/1.1"))
    if tls12:
        talk.answers(2, record(22, bytes(3000)))
        talk.asks(3, record(22, bytes(70)) + record(20, b"\1") + record(22, bytes(40)))
        talk.answers(4, record(20, b"\1") + record(22, bytes(40)))
    else:
        talk.answers(2, record(22, bytes(90)) + record(20, b"\1") + record(23, bytes(3000)))
        talk.asks(3, record(20, b"\1") + record(23, bytes(53)))
        talk.answers(4, record(23, bytes(250)))
        talk.answers(4.1, record(23, bytes(250)))
    for turn in range(3):
        talk.asks(100.0 * turn + 105, record(23, bytes(120)))
        talk.answers(100.0 * turn + 110, record(23, bytes(200)))
        talk.answers(100.0 * turn + 115, record(23, bytes(600)))
    return talk


@pytest.mark.parametrize("tls12", [False, True])
def test_requests_in_tls_count_from_the_second_on(tls12: bool) -> None:
    talk = talk_in_tls(tls12=tls12)
    talk.asks(400, record(23, bytes(120)))
    report = counted(talk)
    assert (ms(report), report["arrivals"], report["lost"]) == ((2, 20.0), 3, 1)
    assert report["first"]["count"] == report["gaps"]["count"] == 0, "that of a head is none"
    assert report["connections"] == {"tls": 1}


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("tls12", [False, True])
def test_a_request_right_behind_the_handshake_is_lost(joined: bool, tls12: bool) -> None:
    """As many clients send it, and TLS 1.2 allows (RFC 7918)."""
    talk = Talk().opens()
    talk.asks(1, client_hello(b"http/1.1"))
    talk.answers(2, record(22, bytes(3000)))
    ends, request = record(20, b"\1") + record(23, bytes(53)), record(23, bytes(120))
    if tls12:
        ends = record(22, bytes(70)) + record(20, b"\1") + record(22, bytes(40))
    if joined and not tls12:
        talk.asks(3, ends + request)
    else:
        talk.asks(3, ends)
        talk.asks(3.1, request[:60])
        talk.asks(3.2, request[60:])
    talk.answers(4, record(23, bytes(250)))
    talk.answers(15, record(23, bytes(600)))
    for turn in range(3):
        talk.asks(100.0 * turn + 105, record(23, bytes(120)))
        talk.answers(100.0 * turn + 115, record(23, bytes(600)))
    report = counted(talk)
    assert (report["whole"]["count"], report["whole"]["in_flight"]) == (1, 0)
    assert (report["arrivals"], report["lost"]) == (2, 2), "that of the handshake, and the next one"


def test_a_farewell_in_tls_is_no_request_and_no_answer() -> None:
    for farewell in (record(23, bytes(19)), record(21, bytes(26))):
        by_server, by_client = talk_in_tls(1), talk_in_tls(2)
        by_server.answers(5315, farewell)
        by_server.server_ends(5315)
        by_client.asks(5315, farewell)
        by_client.client_ends(5315)
        by_client.answers(5316, farewell)
        report = counted(by_server, by_client)
        assert (ms(report), report["arrivals"]) == ((4, 40.0), 4)
        assert (report["whole"]["errors"], report["lost"]) == (0, 2), "the first of each"


def test_a_short_record_that_the_client_follows_is_part_of_the_answer() -> None:
    talk = talk_in_tls()
    talk.answers(318, record(23, bytes(19)))
    talk.asks(400, record(23, bytes(120)))
    assert ms(counted(talk)) == (2, 23.0)


def test_a_connection_a_request_in_tls_is_not_measured() -> None:
    talk = talk_in_tls()
    talk.packets = [one for one in talk.packets if one.ns < START_NS + 200_000_000]
    talk.seqs = [talk.packets[-3].seq + 125, talk.packets[-1].seq + 605]
    talk.client_ends(150)
    talk.server_ends(151)
    assert unmeasured(talk) == {SHORT_TLS: 1}


def test_an_answer_of_1xx_in_tls_is_lost() -> None:
    talk = talk_in_tls()
    talk.asks(400, record(23, bytes(220)))
    talk.answers(400.02, record(23, bytes(42)))
    talk.asks(401, record(23, bytes(9000)))
    report = counted(talk)
    assert (ms(report), report["lost"]) == ((2, 20.0), 2), "and the first one"


def test_other_protocols_are_measured_by_turns() -> None:
    talk = Talk().opens()
    talk.answers(1, b"220 welcome\r\n")
    for turn in range(3):
        talk.asks(100 * turn + 10, b"\x01some")
        talk.asks(100 * turn + 12, b"thing")
        talk.answers(100 * turn + 15, b"\x02other")
        talk.answers(100 * turn + 19, b"thing")
    measured = Measured(talk)
    report = measured.report()
    assert (ms(report), ms(report, "first")) == ((2, 14.0), (2, 6.0))
    assert report["connections"] == {"turns": 1}
    talk.packets.clear()
    talk.server_ends(9000)
    measured.feed(talk.packets)
    report = measured.report()
    assert (ms(report), ms(report, "first")) == ((1, 7.0), (1, 3.0))

"""Conversations of a drawn truth, and what the meter of the wire makes of their packets.

A conversation's input is its seed. Each byte of either side has a time: that of the first captured
packet with it. From these alone follows what may be counted. A latency, a first byte, a gap, an
arrival or a failure that is counted is one of the truth; where each packet was captured whole, once
and in order, all of them are counted; else what is missing is reported as lost or not measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from random import Random
from unittest.mock import patch

from dlsched.runtime.wire import counts
from dlsched.runtime.wire.meter import Meter
from tests.mutation import Broken
from tests.runtime.wire.packets import (
    ACK,
    CLIENT,
    FIN,
    PSH,
    RST,
    SERVER,
    START_NS,
    SYN,
    Packet,
    block,
    filtered,
    tcp,
    whole,
)

PORT = 8000
_UP, _DOWN = 0, 1
_LETTERS = b"abcdefghij0123456789\r\n :;GETHTP/"


@dataclass
class _Exchange:
    """One request and its answer, as places in the streams of both sides."""

    counts: bool
    fails: bool = False
    asked: tuple[int, int] = (0, 0)
    answered: tuple[int, int] = (0, 0)
    interim: list[int] = field(default_factory=list)
    """Where in the server's stream an answer of 1xx ends."""
    content: list[tuple[int, int]] = field(default_factory=list)
    """Where in the server's stream the body itself is."""
    until_close: bool = False
    bodiless: bool = False
    early: bool = False
    unproven: bool = False
    """Whether its request ends where it can be seen by what follows alone."""


@dataclass
class _Sent:
    """A packet as it was sent, before anything happened to it."""

    ns: int
    way: int
    begin: int
    end: int
    flags: int = PSH | ACK
    ack: int = 0


@dataclass
class _Line:
    """One connection."""

    client_port: int
    isns: tuple[int, int]
    streams: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    exchanges: list[_Exchange] = field(default_factory=list)
    sent: list[_Sent] = field(default_factory=list)
    broken: bool = False
    """Whether it ends within an exchange."""


class Recorded(counts.Sketch):
    """Keeps each latency that is counted."""

    __slots__ = ("all_ns",)

    def __init__(self) -> None:
        super().__init__()
        self.all_ns: list[int] = []

    def add(self, ns: int, index: int | None = None) -> int:
        self.all_ns.append(ns)
        return super().add(ns, index)


@contextmanager
def _recorded() -> Iterator[None]:
    with patch.object(counts, "Sketch", Recorded):
        yield


def _text(rng: Random, size: int) -> bytes:
    return (
        bytes(rng.choices(_LETTERS, k=size))
        if size < 400
        else rng.randbytes(8).hex().encode() * (size // 16 + 1)
    )


def _size(rng: Random) -> int:
    return rng.choice((0, 1, rng.randrange(40), rng.randrange(3000), rng.randrange(40_000)))


def _padding(rng: Random) -> bytes:
    size = rng.choice((0, 0, 10, 150, 300, 1500))
    return b"X-Padding: " + b"p" * size + b"\r\n" if size else b""


def _chunks(rng: Random, size: int, at: int, content: list[tuple[int, int]]) -> bytes:
    """A body of this size in chunks, which begins at this place of the stream."""
    body = b""
    while size:
        part = min(size, rng.choice((1, 20, 700, size)))
        spelled = b"%x" if rng.random() < 0.8 else b"%04X"
        body += spelled % part + (b";a=b" if rng.random() < 0.1 else b"") + b"\r\n"
        content.append((at + len(body), at + len(body) + part))
        body += _text(rng, part)[:part].ljust(part, b"z") + b"\r\n"
        size -= part
    return body + b"0\r\n" + (b"X-Trailer: 1\r\n" if rng.random() < 0.2 else b"") + b"\r\n"


def _request(rng: Random, line: _Line, skipped: bool) -> tuple[_Exchange, bytes, int]:
    """The exchange, its method, and how many bytes of its head come before its body."""
    up = line.streams[_UP]
    method = rng.choice((b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"DELETE"))
    path = b"/health" if skipped else b"/x" + b"y" * rng.choice((0, 3, 300))
    head = method + b" " + path + b" HTTP/1.1\r\nHost: a\r\n" + _padding(rng)
    body, chunked = b"", False
    if method in (b"POST", b"PUT"):
        size = _size(rng)
        if rng.random() < 0.2:
            head += b"Transfer-Encoding: chunked\r\n"
            body, chunked = _chunks(rng, size, 0, []), True
        else:
            head += b"content-length: %d\r\n" % size
            body = _text(rng, size)[:size].ljust(size, b"z")
    begin = len(up)
    up += head + b"\r\n" + body
    exchange = _Exchange(not skipped, asked=(begin, len(up)), unproven=chunked)
    return exchange, method, len(head) + 2


def _answer(rng: Random, line: _Line, exchange: _Exchange, method: bytes, last: bool) -> None:
    down = line.streams[_DOWN]
    begin = len(down)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        down += rng.choice((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nLink: a\r\n\r\n"))
        exchange.interim.append(len(down))
    code = rng.choice((200, 200, 200, 200, 404, 500, 503, 429, 204, 304))
    down += b"HTTP/1.1 %d Word\r\n" % code + _padding(rng)
    size = _size(rng)
    exchange.fails = code >= 500 or code == 429
    exchange.bodiless = method == b"HEAD" or code in (204, 304)
    if exchange.bodiless:
        down += (b"Content-Length: %d\r\n" % size if rng.random() < 0.5 else b"") + b"\r\n"
    elif rng.random() < 0.4:
        down += b"Transfer-Encoding: chunked\r\n\r\n"
        down += _chunks(rng, size, len(down), exchange.content)
    elif last and rng.random() < 0.5:
        down += b"Connection: close\r\n\r\n"
        exchange.content.append((len(down), len(down) + size))
        down += _text(rng, size)[:size].ljust(size, b"z")
        exchange.until_close = True
    else:
        down += b"CONTENT-LENGTH:%d\r\n\r\n" % size
        exchange.content.append((len(down), len(down) + size))
        down += _text(rng, size)[:size].ljust(size, b"z")
        exchange.bodiless = size == 0
    exchange.answered = (begin, len(down))


def _cuts(rng: Random, begin: int, end: int) -> list[tuple[int, int]]:
    """Packets for these bytes of a stream."""
    found = []
    while begin < end:
        size = rng.choice((1, 3, 20, 1448, 1448, 65_000, 65_000))
        found.append((begin, min(end, begin + size)))
        begin += size
        if len(found) > 60:
            found.append((begin, end))
            break
    return [one for one in found if one[0] < one[1]]


def _drawn_line(rng: Random, client_port: int, tick: Callable[[], int], *, odd: bool) -> _Line:
    line = _Line(client_port, (rng.randrange(2**32), rng.randrange(2**32)))
    sent = line.sent

    def send(way: int, begin: int, end: int, flags: int = PSH | ACK) -> None:
        sent.append(_Sent(tick(), way, begin, end, flags))

    if not odd or rng.random() < 0.8:
        for _ in range(rng.choice((1, 1, 2))):
            send(_UP, -1, -1, SYN)
        send(_DOWN, -1, -1, SYN | ACK)
    number = rng.randrange(1, 5)
    at = [0, 0]

    def flush(way: int, end: int) -> None:
        for begin, to in _cuts(rng, at[way], end):
            send(way, begin, to)
        at[way] = max(at[way], end)

    for turn in range(number):
        exchange, method, head = _request(rng, line, rng.random() < 0.1)
        line.exchanges.append(exchange)
        asked = exchange.asked[1]
        if odd and rng.random() < 0.05 and asked - exchange.asked[0] > head:  # answered early
            exchange.early = True
            asked = exchange.asked[0] + head + rng.randrange(asked - exchange.asked[0] - head)
        flush(_UP, asked)
        _answer(rng, line, exchange, method, turn == number - 1)
        begin, end = exchange.answered
        if odd and rng.random() < 0.06:  # it breaks
            line.broken = True
            flush(_DOWN, rng.randrange(begin, end))
            break
        if odd and rng.random() < 0.06 and end - begin > 2:  # the next one is sent ahead
            cut = rng.randrange(begin, end)
            flush(_DOWN, next((one for one in exchange.interim if one > cut), cut))
            following, _, _ = _request(rng, line, False)
            following.early = True  # no answer to it is drawn: it has no truth
            line.exchanges.append(following)
            flush(_UP, len(line.streams[_UP]))
            flush(_DOWN, end)
            line.broken = True
            break
        flush(_DOWN, end)
        flush(_UP, exchange.asked[1])
    for way, flags in _ending(rng, line):
        send(way, at[way], at[way], flags)
    seen = [0, 0]
    for one in sent:
        one.ack = seen[1 - one.way]
        seen[one.way] = max(seen[one.way], one.end + bool(one.flags & FIN))
    return line


def _ending(rng: Random, line: _Line) -> list[tuple[int, int]]:
    """Who says that it is the end, and how."""
    server, client = (_DOWN, FIN | ACK), (_UP, FIN | ACK)
    reset = rng.choice((_UP, _DOWN)), RST | ACK
    if line.broken:
        return rng.choice(([server, client], [reset]))
    if any(one.until_close for one in line.exchanges):
        return [server, client]
    return rng.choice(([server, client], [client, server], [reset], []))


def _captured(rng: Random, line: _Line, faults: float) -> list[_Sent]:
    """What of it was captured: packets missing, again, in other places."""
    if not faults:
        return list(line.sent)
    found: list[_Sent] = []
    for one in line.sent:
        drawn = rng.random() / faults
        if drawn < 0.3:
            continue
        found.append(one)
        if drawn < 0.6 and one.end > one.begin >= 0:
            begin = max(0, one.begin - rng.choice((0, 0, 5, 2000)))
            again = _Sent(one.ns + rng.randrange(1, 10**9), one.way, begin, one.end, ack=one.ack)
            found.append(again)
    for at in range(len(found) - 1):
        if rng.random() < 0.1 * faults:
            one, other = found[at], found[at + 1]
            one.ns, other.ns = other.ns, one.ns
            found[at], found[at + 1] = other, one
    return sorted(found, key=lambda one: one.ns)


def _packet(line: _Line, one: _Sent) -> Packet:
    ends = (CLIENT, line.client_port), (SERVER, PORT)
    payload = bytes(line.streams[one.way][one.begin : one.end]) if one.begin >= 0 else b""
    seq = line.isns[one.way] + 1 + one.begin
    ack = line.isns[1 - one.way] + 1 + one.ack
    data = tcp(ends[one.way], ends[1 - one.way], seq, ack, one.flags, payload)
    return Packet(one.ns, data, one.way == _UP, payload)


@dataclass
class _Truth:
    """What may be counted."""

    whole: Counter[int] = field(default_factory=Counter)
    first: Counter[int] = field(default_factory=Counter)
    gaps: Counter[int] = field(default_factory=Counter)
    arrivals: int = 0
    failed: int = 0
    unproven: int = 0
    perhaps: int = 0
    """Those of `whole` that need not count."""


def _truth(line: _Line, captured: list[_Sent]) -> _Truth:
    """By brute force: the time of every byte."""
    times: list[list[int]] = [[0] * len(stream) for stream in line.streams]
    for one in captured:
        for at in range(max(0, one.begin), one.end):
            times[one.way][at] = times[one.way][at] or one.ns
    end_ns = next((one.ns for one in captured if one.way == _DOWN and one.flags & FIN), 0)
    syns = [one.ns for one in captured if one.way == _UP and one.flags & SYN]
    accepted = [one.ns for one in captured if one.way == _DOWN and one.flags & SYN]
    connect_ns = accepted[0] - syns[0] if syns and accepted and accepted[0] > syns[0] else 0
    truth = _Truth()
    for number, exchange in enumerate(line.exchanges):
        truth.arrivals += exchange.counts
        truth.unproven += exchange.unproven
        # Where an answer until the close is cut short cannot be seen.
        ends = line.broken and number == len(line.exchanges) - 1 and not exchange.until_close
        truth.failed += exchange.counts and (exchange.fails or line.broken)
        if not exchange.counts or exchange.early or exchange.fails or ends:
            continue
        asked_ns = times[_UP][exchange.asked[1] - 1]
        last_ns = times[_DOWN][exchange.answered[1] - 1]
        if exchange.until_close:
            last_ns = end_ns
            truth.perhaps += line.broken
        if not asked_ns:
            continue
        waited_ns = connect_ns if number == 0 else 0
        contents = [at for begin, end in exchange.content for at in range(begin, end)]
        first_ns = times[_DOWN][contents[0]] if contents else last_ns * exchange.bodiless
        if last_ns:
            truth.whole[last_ns - asked_ns + waited_ns] += 1
        if first_ns:
            truth.first[first_ns - asked_ns + waited_ns] += 1
    for exchange in line.exchanges:
        if not exchange.counts:
            continue
        content = (times[_DOWN][at] for begin, end in exchange.content for at in range(begin, end))
        # A packet sent again may fill a gap and go on behind what is known: it has two places.
        for one, other in pairwise(ns for ns, _ in groupby(content)):
            if one and other:
                truth.gaps[other - one] += 1
    return truth


def read_talk(data: bytes) -> str:
    rng = Random(data)
    clock = [START_NS]
    kind = rng.choice(("clean", "cut", "faults", "odd", "all"))
    faults = rng.choice((0.05, 0.3)) if kind in ("faults", "all") else 0.0
    snap = whole if kind == "clean" or rng.random() < 0.3 else filtered
    lines, packets = [], []
    for number in range(rng.randrange(1, 4)):
        clock[0] = START_NS + rng.randrange(10**9)

        def tick() -> int:
            clock[0] += rng.randrange(1, 10 ** rng.randrange(4, 10))
            return clock[0]

        line = _drawn_line(rng, 40_000 + number, tick, odd=kind in ("odd", "all"))
        captured = _captured(rng, line, faults)
        packets += [_packet(line, one) for one in captured]
        lines.append(_truth(line, captured))
    packets.sort(key=lambda one: one.ns)
    with _recorded():
        return _judged(rng, kind, packets, lines, snap is whole)


def _judged(rng: Random, kind: str, packets: list[Packet], truths: list[_Truth], full: bool) -> str:
    meter = Meter()
    meter.watch({0: {PORT: 1}}, {1: "/health"})
    at = 0
    while at < len(packets):
        size = rng.choice((1, 5, 100))
        meter.block(0, block(packets[at : at + size], whole if full else filtered))
        at += size
    counted = meter._counts[1]
    said = {name: Counter(getattr(counted, name).all_ns) for name in ("whole", "first", "gaps")}
    arrivals, failed, lost = counted.arrivals, counted.failed, counted.lost
    unmeasured = sum(counted.unmeasured.values())
    report = meter.report(packets[-1].ns if packets else START_NS)
    true = {name: sum((getattr(one, name) for one in truths), Counter()) for name in said}
    for name, one in said.items():
        if invented := one - true[name]:
            raise Broken(f"a number that is not there: {kind}, {name}: {dict(invented)}")
    if arrivals > sum(one.arrivals for one in truths):
        raise Broken(f"too many requests: {kind}, {arrivals}")
    if failed > sum(one.failed for one in truths):
        raise Broken(f"too many failures: {kind}, {failed}")
    if report["bad"]:
        raise Broken(f"good packets are called bad: {kind}")
    missing = sum((true["whole"] - said["whole"]).values()) - sum(one.perhaps for one in truths)
    waiting = sum(one.open or one._held is not None for _, one in meter._connections())
    unproven = sum(one.unproven for one in truths)
    doubt = missing > lost or lost > unproven or unmeasured or true["gaps"] != said["gaps"]
    if kind == "clean" and not waiting and doubt:
        raise Broken(f"not all is counted: {missing} of {sum(true['whole'].values())}")
    if missing > 0 and not (lost or unmeasured or waiting):
        raise Broken(f"what is missing is not reported: {kind}, {missing}")
    latencies = {name: sorted(one.elements()) for name, one in said.items()}
    return f"{kind} {arrivals} {failed} {lost} {unmeasured} {latencies}"

"""Blocks of anything, read by the meter of the wire.

What must hold: no exception, tables and buffers within their bounds, no count below zero, and a
report that the daemon takes.
"""

from __future__ import annotations

import json
from random import Random
from unittest.mock import patch

from dlsched.runtime.wire import connection, counts, meter
from dlsched.runtime.wire.traffic import checked
from tests.mutation import Broken, mutated
from tests.runtime.wire.packets import (
    ACK,
    FIN,
    RST,
    START_NS,
    SYN,
    Packet,
    block,
    client_hello,
    record,
    tcp,
    whole,
)

PORTS = (8000, 8001)
CONNECTIONS = 8
"""At most, so that hosts give way to others all the time."""
_SAID = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"HEAD http://a/ HTTP/1.0\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"0\r\n\r\n",
    b"HTTP/1.1 101 Up\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"HTTP/1.1 503 No\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", client_hello(b"h2"), client_hello(b"http/1.1"),
    record(23, bytes(100)), record(23, bytes(19)), record(21, bytes(26)), b"*1\r\n$4\r\nPING\r\n",
)  # fmt: skip
_WORDS = (
    b"HTTP/1.1 ", b"\r\n\r\n", b"Content-Length: 99999999999999", b"Content-Length: -1",
    b"ffffffff", b"Transfer-Encoding: chunked\r\n", b"GET ", b"\x16\x03\x01\x02",
    b"\xff\xff\xff\xff", bytes(4),
)  # fmt: skip
_FLAGS = (ACK, ACK, ACK, ACK | 8, SYN, SYN | ACK, FIN | ACK, RST, RST | ACK, 0, SYN | FIN, 0xFF)


def make_blocks(rng: Random) -> bytes:
    """One to three blocks, each behind its length."""
    ipv6 = rng.random() < 0.3
    seqs = [rng.choice((1000, 2**32 - 50, rng.randrange(2**32))) for _ in range(2)]
    hosts = [f"fd00::{n}" if ipv6 else f"10.0.0.{n}" for n in range(1, 4)]
    ns, blocks = START_NS, b""
    for _ in range(rng.randrange(1, 4)):
        packets = []
        for _ in range(rng.randrange(1, 12)):
            way = rng.randrange(2)
            said = b"" if rng.random() < 0.2 else rng.choice(_SAID)
            if rng.random() < 0.3:
                said = mutated(rng, said, _SAID, _WORDS)[: rng.choice((3, 300, 60_000))]
            client = rng.choice(hosts), 40_000 + rng.randrange(5)
            ends = client, ("fd00::f" if ipv6 else "127.0.0.1", rng.choice(PORTS))
            seq = seqs[way] + rng.choice((0, 0, 0, 0, -5, 5, 2**31, rng.randrange(2**32)))
            flags = rng.choice(_FLAGS)
            data = tcp(ends[way], ends[1 - way], seq, seqs[1 - way], flags, said)
            seqs[way] += len(said)
            if rng.random() < 0.2:
                data = mutated(rng, data[:60], (data,), _WORDS) + data[60:]
            ns += rng.choice((1, 10**6, 10**9, 10**11, -(10**10)))
            packets.append(Packet(max(0, ns), data[:65_000], way == 0, said))
        one = block(packets, whole if rng.random() < 0.5 else lambda _: rng.randrange(20, 300))
        if rng.random() < 0.3:
            one = mutated(rng, one, (one,), _WORDS)
        blocks += len(one).to_bytes(4, "little") + one
    return blocks


def read_blocks(data: bytes) -> str:
    with patch.object(meter, "CONNECTIONS_MAX", CONNECTIONS):
        return _metered(data)


def _metered(data: bytes) -> str:
    one = meter.Meter()
    one.watch({0: {8000: 1, 8001: 2}, 1: {8000: 1}}, {1: "/health"})
    said, at, turn = [], 0, 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        one.block(turn % 2 if turn == 2 else 0, data[at + 4 : at + 4 + length])
        at, turn = at + 4 + length, turn + 1
        _check_bounds(one)
        report = one.report(START_NS + turn * 10**11)
        for counted in report["ports"].values():
            checked(1, json.loads(json.dumps(counted, allow_nan=False)))
            numbers = (counted["arrivals"], counted["lost"], *counted["unmeasured"].values())
            if min(numbers) < 0:
                raise Broken("fewer than none are counted")
            said.append([counted[key] for key in ("arrivals", "lost", "connections", "unmeasured")])
            said.append([counted["whole"]["count"], counted["whole"]["errors"]])
    return json.dumps([one.bad, said])


def _check_bounds(one: meter.Meter) -> None:
    if len(one._table) > 2 * CONNECTIONS or len(one._table) % 2:
        raise Broken(f"{len(one._table)} directions of connections")
    for each, _ in one._table.values():
        if max(len(each._head), len(each._ask)) > connection.HEAD_BYTES:
            raise Broken("a connection keeps more than a head")
    for port in one._counts.values():
        if len(port.callers) > counts.CALLERS_MAX + 1:
            raise Broken("too many callers")

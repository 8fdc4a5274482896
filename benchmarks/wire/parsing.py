"""`python -m benchmarks run wire-cost`: what parsing packets at the wire costs, without a socket.

Blocks of kept connections with one GET a request and its answer, the way a load generator makes
them, and of answers of many packets; read by the meter alone, in CPU time, the best of some runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.robustness.fuzzing.packets import Packet, Talk, block, merged
from dlsched.runtime.wire.meter import Meter

CONNECTIONS, RUNS, IN_A_BLOCK = 8, 7, 100
PACKET_US, REQUEST_US = 2.0, 5.0
_GET = (
    b"GET /predict?x=1 HTTP/1.1\r\nHost: localhost:8000\r\nUser-Agent: wrk/4.2\r\nAccept: */*\r\n"
    b"\r\n"
)
_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Fri, 27 Nov 2026 18:52:14 GMT\r\n"
    b"Content-Type: application/json\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n"
)


def _talks(requests: int, parts: int) -> Iterator[Packet]:
    """All packets of so many requests; each answer comes in `parts` packets."""
    talks = [Talk(client_port=40_000 + at, local=True).opens() for at in range(CONNECTIONS)]
    body = b"x" * 600
    at_ms = 1.0
    for _ in range(requests // CONNECTIONS):
        for talk in talks:
            talk.asks(at_ms, _GET)
            for part in range(parts):
                at_ms += 0.01
                talk.answers(at_ms, (b"" if part else _HEAD % (parts * len(body))) + body)
    yield from merged(talks)


def cost_us(requests: int, parts: int) -> tuple[float, float]:
    """CPU microseconds a request, and packets a request."""
    packets = list(_talks(requests, parts))
    blocks = [block(packets[at : at + IN_A_BLOCK]) for at in range(0, len(packets), IN_A_BLOCK)]
    best_s = float("inf")
    for _ in range(RUNS):
        meter = Meter()
        meter.watch({0: {8000: 1}}, {1: "/health|/metrics"})
        began_s = time.process_time()
        for one in blocks:
            meter.block(0, one)
        best_s = min(best_s, time.process_time() - began_s)
    counted = meter.report(0)["ports"]["1"]["whole"]["count"]
    if counted != requests:
        raise RuntimeError(f"{counted} of {requests} requests are counted")
    return 1e6 * best_s / requests, len(packets) / requests


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, requests=(20_000, "of each kind"))
    requests = chosen.requests // CONNECTIONS * CONNECTIONS
    table = []
    for shown, parts in (("one packet", 1), ("ten packets", 10), ("100 packets", 100)):
        us, packets = cost_us(
            max(CONNECTIONS, requests // parts // CONNECTIONS * CONNECTIONS), parts
        )
        most_us = PACKET_US * packets + REQUEST_US
        table.append(
            {
                "answer": shown,
                "us a request": round(us, 2),
                "us a packet": round(us / packets, 2),
                "at most": round(most_us, 1),
                "verdict": results.verdict(us <= most_us),
            }
        )
    results.finish("wire-cost", "none", [1], table, {"CPU of reading packets": table}, whole=False)
    return 0

"""What the process that reads packets can do to the daemon: killed, stopped, answering nonsense.

A thread takes the numbers every two milliseconds, as the daemon's loop does every second. It counts
by how much it is late at most, its sleep included: another thread may hold the interpreter. A
number is invented if there are more requests than the client had answered, or a latency that no
request had.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.publish import results
from benchmarks.wire import cells, place, servers
from dlsched.model.facts import LatencySketch
from dlsched.report.buckets import bucket_value_s
from dlsched.runtime.wire.process import Child
from dlsched.runtime.wire.tap import Tap
from dlsched.runtime.wire.traffic import Watched
from tools.waiting import until

DELAY_MS = 100.0
TAKE_EVERY_S = 0.002
RATE_PER_S = 200.0
BACK_WITHIN_S = 30.0
NONSENSE_S = 6.0
GROWTH_MIB = 64.0
"""By so much the daemon's memory may grow while it is answered nonsense."""
RATIO = 1.05

_PRINT = "import os, sys, time\n"
NONSENSE = {
    "ends immediately": "",
    "takes nothing and says nothing": "time.sleep(999)",
    "random bytes without end": "while True: os.write(1, os.urandom(65536))",
    "one line without end": "while True: os.write(1, b'[' * 65536)",
    "empty reports without end": (
        'while True: os.write(1, b\'{"ports":{},"packets":0}\\n\' * 4096)'
    ),
    "reports of 4 MB in short lines": (
        "one = {'count': 700, 'sum': 1e4, 'buckets': dict.fromkeys(range(800, 1500), 1)}\n"
        "line = json.dumps({'ports': {str(n): one for n in range(90, 99)}}).encode() + b'\\n'\n"
        'end = b\'{"ports":{},"packets":1}\\n\'\n'
        "while True:\n"
        " rest = line * (4_000_000 // len(line)) + end\n"
        " while rest: rest = rest[os.write(1, rest):]\n"
        " time.sleep(1)"
    ),
    "a line of 4 MB": (
        "line = b'{\"ports\":{\"1\":{\"whole\":[' + b'1,' * 2_000_000 + b'1]}}}\\n'\n"
        "while True:\n rest = line\n while rest: rest = rest[os.write(1, rest):]\n time.sleep(.5)"
    ),
    "deep lists": "os.write(1, b'{\"ports\":' + b'[' * 60000 + b'\\n'); time.sleep(999)",
    "a number that is no number": (
        'os.write(1, \'{"ports":{"\\u00b2":{},"1":{}}}\\n\'.encode()); time.sleep(999)'
    ),
    "more requests than its buckets": "say(count=5, buckets={'400': 1}, sum=1.0)",
    "counts below zero": "say(count=-5, buckets={'400': -5}, sum=-1.0)",
    "a sum that is not finite": "say(count=1, buckets={'400': 1}, sum=float('nan'))",
    "latencies of years": "say(count=1, sum=1e12)",
    "10^18 requests": "say(count=10**18, buckets={'400': 10**18}, sum=1e15)",
    "half a report": 'os.write(1, b\'{"ports":{"1":{"whole":{"count":3}}}}\\n\'); time.sleep(9)',
    "a port that is not watched": "say(number='77', count=1, buckets={'400': 1}, sum=0.003)",
}
"""What stands in for the process that reads, as Python."""
_SAY = """
import json
def say(number='1', **latency):
    one = {name: latency for name in ('whole', 'first', 'gaps')}
    one |= {'arrivals': 0, 'lost': 0, 'connections': {}, 'unmeasured': {}, 'callers': {}}
    while True:
        os.write(1, json.dumps({'ports': {number: one}, 'packets': 1}).encode() + b'\\n')
        time.sleep(1)
"""


@dataclass
class Taking:
    """What a thread has taken that takes all the time."""

    watched: Watched
    latest_ms: float = 0.0
    takes: int = 0
    requests: int = 0
    arrivals: int = 0
    latencies: Counter[int] = field(default_factory=Counter)
    """By bucket."""
    ended: bool = False

    def run(self) -> None:
        while not self.ended:
            began_s = time.monotonic()
            time.sleep(TAKE_EVERY_S)
            taken = self.watched.take(began_s)
            late_s = time.monotonic() - began_s - TAKE_EVERY_S
            self.latest_ms = max(self.latest_ms, 1e3 * late_s)
            self.takes += 1
            for port in taken:
                self.arrivals += port.arrivals
                for report in port.whole:
                    self.add(report.latency or LatencySketch())

    def add(self, sketch: LatencySketch) -> None:
        self.requests += sketch.count
        self.latencies.update(dict(sketch.buckets))


@contextmanager
def taking(watched: Watched) -> Iterator[Taking]:
    one = Taking(watched)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield one
    finally:
        one.ended = True
        thread.join()


class KnownTap(Tap):
    """A tap whose children are known."""

    def __init__(self, command: Sequence[str] = (), **more: Any) -> None:
        self.children: list[Child] = []
        super().__init__(start_child=lambda: self._one(command), **more)

    def _one(self, command: Sequence[str]) -> Child:
        self.children.append(Child(command))
        return self.children[-1]


def rows(folder: Path, kills: int) -> Iterator[dict[str, Any]]:
    with servers.UVICORN.run(folder) as (one, port):
        yield broken(one, port, f"killed {kills} times", kills, signal.SIGKILL)
        yield broken(one, port, "stopped 3 times", 3, signal.SIGSTOP)
        for what, program in NONSENSE.items():
            yield nonsense(one, port, what, program)


def broken(
    one: place.StandIn, port: int, what: str, times: int, harm: signal.Signals
) -> dict[str, Any]:
    """A row: that many harms under load; after each one it must measure again."""
    with (
        closing(KnownTap()) as tap,
        cells.watching(tap, one, port) as watched,
        loaded(one, port) as load,
        taking(watched) as taken,
    ):
        until(lambda: taken.requests > 0, "a first number", BACK_WITHIN_S)
        for _ in range(times):
            number = len(tap.children)
            with suppress(ProcessLookupError):
                os.kill(tap.children[-1].pid, harm)
            until(lambda n=number: len(tap.children) > n, "another process", BACK_WITHIN_S)
            before = taken.requests
            until(lambda b=before: taken.requests > b, "a number again", BACK_WITHIN_S)
        load.send_signal(signal.SIGTERM)
        answered = json.loads(load.communicate(timeout=60)[0])
        time.sleep(cells.REPORTED_S)
    invented = invented_by(taken, answered)
    return {
        "the process": what,
        "latest by, ms": taken.latest_ms,
        "takes": taken.takes,
        "requests": answered["answered"],
        "measured": taken.requests,
        "invented": invented or "nothing",
        "verdict": results.verdict(not invented and taken.latest_ms <= DELAY_MS),
    }


@contextmanager
def loaded(one: place.StandIn, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A client that asks until it gets SIGTERM."""
    cell = cells.Cell(servers.UVICORN, True, RATE_PER_S)
    command = cells.asking(one.address, port, cell, 10**9)
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def invented_by(taken: Taking, answered: Mapping[str, Any]) -> str:
    """What of the numbers cannot be true; empty: nothing."""
    if taken.requests > answered["answered"]:
        return f"{taken.requests - answered['answered']} requests"
    low_s, high_s = answered["whole_least"] / 1e3, answered["whole_most"] / 1e3
    for index in taken.latencies:
        value_s = bucket_value_s(index)
        # The wire is nearer to the server than the client is, so it may be a little quicker.
        if not low_s / RATIO - 5e-4 <= value_s <= high_s * RATIO + 5e-4:
            return f"a latency of {1e3 * value_s:.1f} ms"
    return ""


def nonsense(one: place.StandIn, port: int, what: str, program: str) -> dict[str, Any]:
    """A row: a stand-in for the process, which says what it must not."""
    command = (sys.executable, "-I", "-c", _PRINT + _SAY + program)
    with (
        closing(KnownTap(command)) as tap,
        cells.watching(tap, one, port) as watched,
        taking(watched) as taken,
    ):
        rss_mib = place.rss_mib()
        time.sleep(NONSENSE_S)
        grown_mib = place.rss_mib() - rss_mib
        threads = {thread.name for thread in threading.enumerate()}
    alive = "dlsched-wire" in threads
    reached = taken.latest_ms <= DELAY_MS and not taken.requests and not taken.arrivals
    return {
        "the process": what,
        "latest by, ms": taken.latest_ms,
        "takes": taken.takes,
        "measured": taken.requests,
        "invented": f"{taken.requests} requests" if taken.requests else "nothing",
        "started": len(tap.children),
        "memory grew, MiB": max(0.0, grown_mib),
        "said": tap.problem if alive else "the thread has ended",
        "verdict": results.verdict(reached and alive and grown_mib <= GROWTH_MIB),
    }


def headline(rows: Sequence[Mapping[str, Any]]) -> str:
    latest_ms = max(row["latest by, ms"] for row in rows)
    failed = [row["the process"] for row in rows if row["verdict"] != "reached"]
    invented = [row["the process"] for row in rows if row["invented"] != "nothing"]
    return (
        f"The process that reads packets {rows[0]['the process']}, stopped, and answering nonsense "
        f"in {len(rows) - 2} ways: the thread was late by {latest_ms:.1f} ms (at most "
        f"{DELAY_MS:g}), {len(invented)} invented numbers: {results.verdict(not failed)}."
    )

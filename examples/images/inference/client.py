"""Open-loop client: requests arrive by chance, whether or not the server keeps up.

Gaps between arrivals are exponential, so arrivals are a Poisson process, the same for the same
seed. No arrival waits for an answer: latency counts from the moment the request was due, and an
arrival that finds all in-flight places taken is dropped and counted. Prints a line of JSON for the
whole run. Standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Connect = Callable[[], http.client.HTTPConnection]
Each = Callable[[float, float | None], None]
"""Called for each request with the moment at which it was due, on the monotonic clock, and its
latency in seconds; None: it failed or was dropped."""


def arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Seconds from the start at which requests are due, without end."""
    chance = random.Random(seed)
    due_s = 0.0
    while True:
        due_s += chance.expovariate(rate_per_s)
        yield due_s


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    sent: int = 0
    dropped: int = 0
    errors: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float | int | None]:
        """Counts, mean and p95; latencies are None where nothing was answered."""
        ordered = sorted(self.latencies_s)
        count = len(ordered)
        return {
            "sent": self.sent,
            "answered": count,
            "errors": self.errors,
            "dropped": self.dropped,
            "mean_s": round(sum(ordered) / count, 6) if count else None,
            "p95_s": round(ordered[max(0, -(-95 * count // 100) - 1)], 6) if count else None,
        }


class OpenLoop:
    """Sends the same request at each arrival, with at most `in_flight` of them unanswered."""

    def __init__(
        self, connect: Connect, body: bytes, in_flight: int, each: Each | None = None
    ) -> None:
        self._connect, self._body, self._each = connect, body, each or _ignore
        self._places = threading.BoundedSemaphore(in_flight)
        self._threads = ThreadPoolExecutor(in_flight)
        self._lock = threading.Lock()
        self._tally = Tally()

    def run(self, due_s: Iterator[float], seconds: float, stop: threading.Event) -> Tally:
        """Send until `seconds` are over or `stop` is set, then wait for what is in flight."""
        began = time.monotonic()
        for next_s in due_s:
            if stop.wait(max(0.0, began + min(next_s, seconds) - time.monotonic())):
                break
            if next_s > seconds:
                break
            self._arrive(began + next_s)
        self._threads.shutdown()
        return self._tally

    def _arrive(self, due: float) -> None:
        taken = self._places.acquire(blocking=False)
        with self._lock:
            if taken:
                self._tally.sent += 1
            else:
                self._tally.dropped += 1
                self._each(due, None)
        if taken:
            self._threads.submit(self._request, due)

    def _request(self, due: float) -> None:
        try:
            answered = self._post()
            latency_s = time.monotonic() - due
            with self._lock:
                self._each(due, latency_s if answered else None)
                if answered:
                    self._tally.latencies_s.append(latency_s)
                else:
                    self._tally.errors += 1
        finally:
            self._places.release()

    def _post(self) -> bool:
        """Whether the server answered 200, on a connection of this request's own.

        One that is kept open can be closed by the server just when it is used, and an error that
        the client made itself would be counted against the server.
        """
        connection = self._connect()
        try:
            connection.request("POST", "/predict", self._body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return response.status == 200


def _ignore(_due: float, _latency_s: float | None) -> None:
    """Without --each."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connector(target: str, timeout_s: float) -> Connect:
    """How to connect to http://HOST:PORT or unix:PATH."""
    if target.startswith("unix:"):
        path = target.removeprefix("unix:")
        return lambda: UnixConnection(path, timeout_s)
    address = urlsplit(target).netloc
    return lambda: http.client.HTTPConnection(address, timeout=timeout_s)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", help="http://HOST:PORT or unix:PATH")
    parser.add_argument("--rate", type=float, default=10.0, help="arrivals a second (default 10)")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="end after so long (default: never)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals (default 1)")
    parser.add_argument("--count", type=int, default=16, help="images a request (default 16)")
    parser.add_argument(
        "--in-flight",
        type=int,
        default=64,
        help="requests that may be unanswered; an arrival beyond is dropped (default 64)",
    )
    parser.add_argument(
        "--timeout", type=float, default=30.0, help="seconds to an error (default 30)"
    )
    parser.add_argument("--each", action="store_true", help="print a line for each request too")
    return parser.parse_args(arguments)


def main() -> None:
    chosen = parse()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    whole = threading.Lock()

    def tell(row: dict[str, object]) -> None:
        with whole:  # answers come in many threads
            print(json.dumps(row), flush=True)

    def tell_each(due: float, latency_s: float | None) -> None:
        tell({"due_s": due, "latency_s": latency_s})

    body = json.dumps({"count": chosen.count}).encode()
    connect = connector(chosen.target, chosen.timeout)
    loop = OpenLoop(connect, body, chosen.in_flight, tell_each if chosen.each else None)
    total = loop.run(arrivals(chosen.rate, chosen.seed), chosen.seconds, stop)
    tell({"total": True, **total.row()})
    if total.sent and not total.latencies_s:
        sys.exit(f"client: nothing answered at {chosen.target}")


if __name__ == "__main__":
    main()

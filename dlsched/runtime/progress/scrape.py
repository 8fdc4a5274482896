"""Reads a container's Prometheus endpoint in a thread, with bounds.

It asks only the container's own address (no redirect, proxy or name lookup), for at most half a
second and 256 KiB in all. `exposition` parses the pages.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from dlsched.model.facts import Report
from dlsched.model.units import render_address, shown
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.samples import Samples
from dlsched.runtime.progress.sidecar import SourceReading

ANSWER_S = 0.5
"""Time from connecting to the last byte."""
ANSWER_BYTES = 256 * 1024
"""Bytes of head and body together."""
APART_S = 0.9
"""Time between requests; slightly less than a second, since cycles jitter."""


NO_ADDRESS = (
    "the container has no address of its own (network host, none or another container's), so its "
    "metrics cannot be read"
)


class Unanswered(Exception):
    """Why there is no page, in one line."""


class ScrapeReader:
    """Scrapes one container start, once a second at most; for one thread.

    Each page is fetched in a thread of its own and returned by a later read, so that no read
    blocks. Reports are stamped with the time of the request.
    """

    def __init__(
        self,
        address: str | None,
        port: int,
        http_path: str = "/metrics",
        name: str | None = None,
        metric: str | None = None,
        *,
        from_end: bool = False,
    ) -> None:
        """`address`: the container's own, or None. `name`: the Prometheus metric; None: `metric`,
        or else a known server's. `metric`: the name reported for a gauge; None: its own.
        `from_end`: skip what the server counted before the first page."""
        wanted = name or metric
        self._metric = metric or name or ""
        self._pages = Pages(wanted, from_end=from_end)
        self._port = port
        self._http_path = http_path
        self._address = address
        self._problem = NO_ADDRESS if address is None else None
        self._asked_s = float("-inf")
        self._answered_s: float | None = None
        """Time of the last successful request; at first, when reading began."""
        self._answer: Future[PageDelta] | None = None
        # Each new value of a gauge is an evaluation.
        self._samples = Samples("evaluations")

    @property
    def asking(self) -> bool:
        """Whether a request is in progress."""
        return self._answer is not None and not self._answer.done()

    def read(self, now_s: float) -> SourceReading:
        """What the last page added, once it has arrived; starts the next request when due."""
        reading = SourceReading(problem=self._problem)
        if self._answered_s is None:
            self._answered_s = now_s
        if self._answer is not None and self._answer.done():
            reading, self._answer = self._taken(self._answer), None
        if self._answer is None and self._address and now_s - self._asked_s >= APART_S:
            self._asked_s = now_s
            self._answer = self._ask(self._address)
        return reading

    def close(self) -> None:
        """Abandon a request in progress; it ends within half a second."""
        self._answer = self._address = None

    def _taken(self, answer: Future[PageDelta]) -> SourceReading:
        where = f"{render_address(self._address or '', self._port)}{self._http_path}"
        try:
            delta = answer.result()
        except Unanswered as why:
            self._problem = f"http://{where}: {why}"
            return SourceReading(problem=self._problem)
        self._problem = None if delta.problem is None else f"http://{where}: {delta.problem}"
        at_s = self._asked_s
        span_s = max(APART_S, at_s - (self._answered_s or 0.0))
        reports = []
        if delta.latency is not None:
            reports.append(Report(at_s, latency=delta.latency, span_s=span_s))
        if delta.value is not None:
            sample = self._samples.add({self._metric: delta.value}, at_s)
            reports.append(Report(at_s, sample=sample))
        if delta.problem is None:
            self._answered_s = at_s
        return SourceReading(tuple(reports), delta.bad_lines, self._problem, delta.refused)

    def _ask(self, address: str) -> Future[PageDelta]:
        answer: Future[PageDelta] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._pages.take(_page(address, self._port, self._http_path)))
            except Unanswered as why:
                answer.set_exception(why)
            except Exception as error:  # noqa: BLE001 - no answer of a container ends the loop
                answer.set_exception(Unanswered(f"not understood: {shown(repr(error))}"))

        try:
            threading.Thread(target=ask, name="dlsched-scrape", daemon=True).start()
        except RuntimeError as error:
            answer.set_exception(Unanswered(f"not asked: {error}"))
        return answer


class _Bounded(socket.socket):
    """A connection bounded in time and size, whatever the other side does."""

    until_s: float
    bytes_left = ANSWER_BYTES

    def limit(self) -> None:
        """Set the timeout to the time left until the deadline."""
        left_s = self.until_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        self.settimeout(left_s)

    def recv_into(self, *where: Any, **more: Any) -> int:
        """Used by `http.client` for reading."""
        self.limit()
        count = super().recv_into(*where, **more)
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise Unanswered(f"more than {ANSWER_BYTES >> 10} KiB: not read")
        return count


def _page(address: str, port: int, http_path: str) -> bytes:
    """The page's body; raises Unanswered."""
    try:
        return _asked(address, port, http_path)
    except TimeoutError:
        raise Unanswered(f"no whole answer within {ANSWER_S:g} s") from None
    except OSError as error:
        raise Unanswered(error.strerror or "the connection broke") from None
    except (http.client.HTTPException, ValueError) as error:
        raise Unanswered(f"not HTTP: {shown(str(error) or type(error).__name__)}") from None


def _asked(address: str, port: int, http_path: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with _Bounded(family, socket.SOCK_STREAM) as connected:
        connected.until_s = time.monotonic() + ANSWER_S
        connected.limit()
        connected.connect((address, port))
        connection = http.client.HTTPConnection(address, port)
        connection.sock = connected
        connected.limit()
        connection.request(
            "GET", http_path, headers={"Accept": "text/plain", "Connection": "close"}
        )
        with connection.getresponse() as response:
            if response.status != http.HTTPStatus.OK:
                raise Unanswered(f"answers with status {response.status}")
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding.strip().lower() != "identity":
                raise Unanswered(f"answers in encoding {shown(encoding)}, which was not asked for")
            return response.read()

"""Reads a container's Prometheus endpoint, off the loop, bounded, and safe against all of it.

Owns the asking: whom, when, and how long. It asks the container's own address and nobody else (no
redirect is followed, no proxy asked, no name looked up), for at most half a second and 256 KiB in
all, however slowly the answer drips. What a page means is `exposition`'s business.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from dlsched.model.facts import Report, Sample
from dlsched.model.units import shown
from dlsched.runtime.progress.exposition import Pages, Told
from dlsched.runtime.progress.sidecar import Reading

ANSWER_S = 0.5
"""From the connecting to the last byte."""
ANSWER_BYTES = 256 * 1024
"""Head and body together."""
APART_S = 0.9
"""From one asking to the next; a hair less than a second, since cycles jitter."""


NO_ADDRESS = (
    "the container has no address of its own (network host, none or another container's), so its "
    "metrics cannot be read"
)


class Unanswered(Exception):
    """There is no page to read, and why, in one line."""


class ScrapeReader:
    """Asks one start of one container, once a second at most. Not safe for several threads.

    A page is asked for in a thread of its own, one at a time, and taken up by a later read; so no
    read waits. What is told is stamped with the moment when it was asked for.
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
        """`address`: the container's own; None: it has none. `name`: the Prometheus metric; None:
        `metric`, or without one that of a known server. `metric`: what a gauge's value is told as;
        None: by its own name. `from_end`: what the server counted before the first page is left
        out."""
        wanted = name or metric
        self._metric = metric or name or ""
        self._pages = Pages(wanted, from_end=from_end)
        self._port = port
        self._http_path = http_path
        self._address = address
        self._trouble = NO_ADDRESS if address is None else None
        self._asked_s = float("-inf")
        self._told_s: float | None = None
        """When the last page was asked for that told something; at first, when reading began."""
        self._answer: Future[Told] | None = None

    @property
    def asking(self) -> bool:
        """Whether an answer is still awaited."""
        return self._answer is not None and not self._answer.done()

    def read(self, now_s: float) -> Reading:
        """What the last page told, if it has arrived; asks for the next one where it is time."""
        reading = Reading(trouble=self._trouble)
        if self._told_s is None:
            self._told_s = now_s
        if self._answer is not None and self._answer.done():
            reading, self._answer = self._taken(self._answer), None
        if self._answer is None and self._address and now_s - self._asked_s >= APART_S:
            self._asked_s = now_s
            self._answer = self._ask(self._address)
        return reading

    def close(self) -> None:
        """Forget what is under way; it ends by itself within half a second."""
        self._answer = self._address = None

    def _taken(self, answer: Future[Told]) -> Reading:
        where = f"{_authority(self._address or '', self._port)}{self._http_path}"
        try:
            told = answer.result()
        except Unanswered as why:
            self._trouble = f"http://{where}: {why}"
            return Reading(trouble=self._trouble)
        self._trouble = None if told.trouble is None else f"http://{where}: {told.trouble}"
        at_s = self._asked_s
        span_s = max(APART_S, at_s - (self._told_s or 0.0))
        reports = []
        if told.latency is not None:
            reports.append(Report(at_s, latency=told.latency, span_s=span_s))
        if told.value is not None:
            sample = Sample(at_s, None, ((self._metric, told.value),))
            reports.append(Report(at_s, sample=sample))
        if told.trouble is None:
            self._told_s = at_s
        return Reading(tuple(reports), told.bad_lines, self._trouble, told.refused)

    def _ask(self, address: str) -> Future[Told]:
        answer: Future[Told] = Future()

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


def _authority(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class _Bounded(socket.socket):
    """A connection that ends at its deadline and its size, whatever the other side does."""

    until_s: float
    bytes_left = ANSWER_BYTES

    def limit(self) -> None:
        """Wait no longer than until the deadline from now on."""
        left_s = self.until_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        self.settimeout(left_s)

    def recv_into(self, *where: Any, **more: Any) -> int:
        """What `http.client` reads through."""
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

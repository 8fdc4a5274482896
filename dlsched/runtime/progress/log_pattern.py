"""Follows the lines that a container prints, in a thread, with bounds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from dlsched.model.errors import DlschedError
from dlsched.model.sources import LabelFilter, Step, When
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.sidecar import READ_BYTES, SourceReading

_log = logging.getLogger(__name__)

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 30.0
HISTORY_LINES = 2048
"""Lines of a container that ran before we looked: a few hundred steps of a training."""
HISTORY_BYTES = 4 * READ_BYTES
"""Of these lines: the most CPU time that a pattern may take is a few seconds, once."""


class LogStream(Protocol):
    """A log as it is written; closing it, from any thread, ends the iteration."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


OpenLog = Callable[[bool], LogStream]
"""Opens a log from the container's start (True) or from now (False); raises DlschedError. After a
history it opens from where that ends (True)."""

History = Callable[[], Iterable[bytes]]
"""The last `HISTORY_LINES` lines that were printed before we looked; raises DlschedError."""


class LogReader:
    """Follows the log of one container start in a thread; reads never block.

    At most 64 KiB are taken between two reads: the rest counts as one bad line. Lines printed while
    a lost connection is restored are missed.
    """

    def __init__(
        self,
        open_log: OpenLog,
        pattern: str,
        *,
        step: Step | None = None,
        when: When | None = None,
        names: Mapping[str, str] | None = None,
        failed: Sequence[LabelFilter] = (),
        from_end: bool = False,
        history: History | None = None,
    ) -> None:
        """`step`, `when`, `names`, `failed`: as in `LogLines`. `from_end`: skip what was printed
        before the first read. `history`: what was printed before it is asked for apart, and no line
        of it is bad. Raises ValueError for an invalid pattern."""
        self._open_log = open_log
        self._lines = LogLines(pattern, step, when, names, failed)
        self._from_start = not from_end
        self._history = history
        self._lock = threading.Lock()
        self._batch = LogBatch()
        self._problem: str | None = None
        self._closed = threading.Event()
        self._room = threading.Event()
        self._room.set()
        self._retry_s = FIRST_RETRY_S
        self._stream: LogStream | None = None
        self._read_s: float | None = None

    def read(self, now_s: float) -> SourceReading:
        """What was printed since the previous read, stamped `now_s`; the first read starts the
        thread."""
        if self._read_s is None:
            try:
                threading.Thread(target=self._follow, name="dlsched-log", daemon=True).start()
            except RuntimeError as error:
                return SourceReading(problem=f"the container's log is not followed: {error}")
        span_s = 1.0 if self._read_s is None else max(1.0, now_s - self._read_s)
        self._read_s = now_s
        with self._lock:
            batch, self._batch = self._batch, LogBatch()
            problem = self._problem
            log = self._lines.fact
            self._room.set()
        return SourceReading(
            batch.reports(now_s, span_s),
            batch.bad_lines,
            problem,
            batch.refused,
            log,
            self._lines.hides_failures,
        )

    def close(self) -> None:
        """Tell the thread to end, without waiting for it."""
        with self._lock:
            self._closed.set()
            self._room.set()
        _end(self._stream)

    def _follow(self) -> None:
        while not self._closed.is_set():
            retry_s, self._retry_s = self._retry_s, min(2 * self._retry_s, LAST_RETRY_S)
            try:
                if self._history is not None:
                    self._take_history(self._history())
                    self._history = None
                self._stream = self._open_log(self._from_start)
                if not self._from_start:
                    self._lines.begin()
                self._from_start = False
                self._note(None)
                # A concurrent close has ended the previous stream, or is noticed here.
                if not self._closed.is_set():
                    self._take(self._stream)
            except DlschedError as error:
                self._note(f"the container's log cannot be read: {error}")
            except Exception as error:  # noqa: BLE001 - a broken stream breaks in many ways
                _log.debug("a log's stream broke: %r", error)
            _end(self._stream)
            if self._room.is_set():
                self._closed.wait(retry_s)
            self._room.wait()

    def _take_history(self, chunks: Iterable[bytes]) -> None:
        printed, cut = bytearray(), False
        for chunk in chunks:
            if self._closed.is_set():
                return
            printed += chunk
            if len(printed) > HISTORY_BYTES:
                del printed[:-HISTORY_BYTES]
                cut = True
        lines = self._lines.before(bytes(printed), cut=cut)
        with self._lock:
            self._lines.take_before(lines, time.monotonic(), self._batch)

    def _take(self, stream: LogStream) -> None:
        """Read until the stream ends, or until the batch is full."""
        for chunk in stream:
            self._retry_s, at_s = FIRST_RETRY_S, time.monotonic()
            lines = self._lines.parsed(chunk)
            with self._lock:
                self._lines.take(chunk, lines, at_s, self._batch)
                if self._batch.full:
                    # After close no read makes room again.
                    if not self._closed.is_set():
                        self._room.clear()
                    return

    def _note(self, problem: str | None) -> None:
        with self._lock:
            self._problem = problem


def _end(stream: LogStream | None) -> None:
    # A concurrent read ends with any of many errors.
    with suppress(Exception):
        if stream is not None:
            stream.close()

"""Reads progress from the lines that a container prints, in a thread, with bounds.

Patterns run on RE2, whose time is linear in the line, and are bounded, so that neither a label nor
a log can block the agent.

Groups: `latency_s`, `latency_ms` or `latency_us` is one request's latency, `step` the training
step, any other name a metric.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

import re2

from dlsched.estimate.sketch import from_latencies
from dlsched.model.errors import DlschedError
from dlsched.model.facts import Report, Sample
from dlsched.model.units import shown
from dlsched.report.buckets import LONGEST_S
from dlsched.report.lines import (
    LAST_STEP,
    LINE_BYTES,
    METRICS_PER_LINE,
    NAME_CHARACTERS,
    RESERVED,
)
from dlsched.runtime.progress.lines import Lines
from dlsched.runtime.progress.sidecar import READ_BYTES, READ_LINES, SourceReading

_log = logging.getLogger(__name__)

PATTERN_CHARACTERS = 256
PROGRAM_STEPS = 200
"""Bound of a compiled pattern's size: 64 KiB of log match within 0.1 s."""

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 30.0

_PROGRAM_BYTES = 256 * 1024
_NUMBER_CHARACTERS = 32
_SAID_CHARACTERS = 80
_LATENCIES_S = {"latency_s": 1.0, "latency_ms": 1e-3, "latency_us": 1e-6}
_STEP = "step"


class LogStream(Protocol):
    """A log as it is written; closing it, from any thread, ends the iteration."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


OpenLog = Callable[[bool], LogStream]
"""Opens a log from the container's start (True) or from now (False); raises DlschedError."""


class Pattern:
    """A valid pattern; raises ValueError, in one line, for any other."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS:
            raise ValueError(f"{len(text)} characters, at most {PATTERN_CHARACTERS}")
        options = re2.Options()
        options.max_mem = _PROGRAM_BYTES
        options.log_errors = False
        # A log may have any encoding: each byte is one character.
        options.encoding = re2.Options.Encoding.LATIN1
        try:
            self._expression: Any = re2.compile(text.encode(), options)
        except re2.error as error:
            why = error.args[0]
            # The message quotes the pattern.
            said = ascii(why.decode("latin-1") if isinstance(why, bytes) else str(why))[1:-1]
            said = said[:_SAID_CHARACTERS]
            raise ValueError(f"{shown(text)}: not a regular expression of RE2: {said}") from None
        if self._expression.programsize > PROGRAM_STEPS:
            size = self._expression.programsize
            raise ValueError(f"{shown(text)}: compiles to {size} steps, at most {PROGRAM_STEPS}")
        groups = sorted(self._expression.groupindex.items(), key=lambda item: item[1])
        self._groups = {name.decode("latin-1"): int(index) for name, index in groups}
        if not 0 < len(self._groups) <= METRICS_PER_LINE:
            wanted = f"1 to {METRICS_PER_LINE} named groups such as (?P<latency_ms>[0-9.]+)"
            raise ValueError(f"{shown(text)}: {wanted} are wanted")
        for name in self._groups:
            unfit = name in RESERVED and name not in (_STEP, "latency_s")
            # RE2 accepts letters of any script in names, and here each byte is a letter.
            unfit = unfit or not (name.isascii() and name.isidentifier())
            if unfit or len(name) > NAME_CHARACTERS:
                raise ValueError(f"{shown(text)}: group {shown(name)}: not a name of a metric")

    def read(self, line: bytes) -> Mapping[str, float] | None:
        """The numbers of the groups in that line; None where it does not match. Raises ValueError,
        in one line, for a match that is no valid number."""
        match = self._expression.search(line)
        if match is None:
            return None
        texts = ((name, match.group(index)) for name, index in self._groups.items())
        return {name: _number(name, text) for name, text in texts if text}


def check_pattern(text: str) -> None:
    """Raise ValueError, in one line, for an invalid pattern."""
    Pattern(text)


def _number(name: str, text: bytes) -> float:
    """The group's value: latencies in seconds."""
    value = math.nan
    with suppress(ValueError):
        if len(text) <= _NUMBER_CHARACTERS and b"_" not in text:
            value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{name}: {shown(text.decode('latin-1'))}: not a finite number")
    if name == _STEP and not (0 <= value <= LAST_STEP and value.is_integer()):
        raise ValueError(f"{name}: {value:g}: an integer, 0 to {LAST_STEP}")
    if name in _LATENCIES_S:
        value *= _LATENCIES_S[name]
        if not 0.0 <= value <= LONGEST_S:
            raise ValueError(f"{name}: not a latency")
    return value


class _LogBatch:
    """The numbers since the last read, and how much may be added until the next."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.samples: list[tuple[int | None, tuple[tuple[str, float], ...]]] = []
        self.bad_lines = 0
        self.refused: str | None = None
        self.bytes_left = READ_BYTES
        self.lines_left = READ_LINES

    @property
    def full(self) -> bool:
        return self.bytes_left <= 0 or self.lines_left <= 0

    def add(self, numbers: Mapping[str, float]) -> None:
        """Add one line's numbers."""
        self.lines_left -= 1
        self.latencies_s += [value for name, value in numbers.items() if name in _LATENCIES_S]
        step = int(numbers[_STEP]) if _STEP in numbers else None
        metrics = tuple(
            (name, value)
            for name, value in numbers.items()
            if name not in _LATENCIES_S and name != _STEP
        )
        if metrics or step is not None:
            self.samples.append((step, metrics))

    def refuse(self, why: str) -> None:
        self.bad_lines += 1
        self.refused = self.refused or why

    def reports(self, now_s: float, span_s: float) -> tuple[Report, ...]:
        """All numbers as reports, received at `now_s`."""
        reports = [
            Report(now_s, sample=Sample(now_s, step, metrics)) for step, metrics in self.samples
        ]
        if self.latencies_s:
            reports.append(Report(now_s, latency=from_latencies(self.latencies_s), span_s=span_s))
        return tuple(reports)


class LogReader:
    """Follows the log of one container start in a thread; reads never block.

    At most 64 KiB are taken between two reads: the rest counts as one bad line. Lines printed while
    a lost connection is restored are missed.
    """

    def __init__(self, open_log: OpenLog, pattern: str, *, from_end: bool = False) -> None:
        """`from_end`: skip what was printed before the first read. Raises ValueError for an invalid
        pattern."""
        self._open_log = open_log
        self._pattern = Pattern(pattern)
        self._from_start = not from_end
        self._lock = threading.Lock()
        self._batch = _LogBatch()
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
                return SourceReading(problem=f"its log is not followed: {error}")
        span_s = 1.0 if self._read_s is None else max(1.0, now_s - self._read_s)
        self._read_s = now_s
        with self._lock:
            batch, self._batch = self._batch, _LogBatch()
            problem = self._problem
            self._room.set()
        return SourceReading(batch.reports(now_s, span_s), batch.bad_lines, problem, batch.refused)

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
                self._stream = self._open_log(self._from_start)
                self._from_start = False
                self._note(None)
                # A concurrent close has ended the previous stream, or is noticed here.
                if not self._closed.is_set():
                    self._take(self._stream)
            except DlschedError as error:
                self._note(f"its log cannot be read: {error}")
            except Exception as error:  # noqa: BLE001 - a broken stream breaks in many ways
                _log.debug("a log's stream broke: %r", error)
            _end(self._stream)
            if self._room.is_set():
                self._closed.wait(retry_s)
            self._room.wait()

    def _take(self, stream: LogStream) -> None:
        """Read until the stream ends, or until the batch is full."""
        lines = Lines(LINE_BYTES)
        for chunk in stream:
            self._retry_s = FIRST_RETRY_S
            # A progress bar overwrites its line with carriage returns.
            results = [self._parsed(line) for line in lines.cut(chunk.replace(b"\r", b"\n"))]
            with self._lock:
                self._batch.bytes_left -= len(chunk)
                for each in results:
                    if self._batch.full:
                        break
                    if isinstance(each, str):
                        self._batch.refuse(each)
                    elif each is not None:
                        self._batch.add(each)
                if self._batch.full:
                    bound = f"{READ_BYTES >> 10} KiB or {READ_LINES} lines"
                    self._batch.refuse(f"more than {bound} in one cycle: the rest is not read")
                    # After close no read makes room again.
                    if not self._closed.is_set():
                        self._room.clear()
                    return

    def _parsed(self, line: bytes | None) -> Mapping[str, float] | str | None:
        """The numbers in a line; why it is refused; or None, where it does not match."""
        if line is None:
            return f"a line of more than {LINE_BYTES} bytes"
        try:
            return self._pattern.read(line)
        except ValueError as why:
            return str(why)

    def _note(self, problem: str | None) -> None:
        with self._lock:
            self._problem = problem


def _end(stream: LogStream | None) -> None:
    # A concurrent read ends with any of many errors.
    with suppress(Exception):
        if stream is not None:
            stream.close()

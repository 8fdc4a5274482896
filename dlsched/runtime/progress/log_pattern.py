"""Reads progress from the lines that a container prints, in a thread, with bounds.

Patterns run on RE2, whose time is linear in the line, and are bounded, so that neither a label nor
a log can block the agent.

Groups: `latency_s`, `latency_ms` or `latency_us` is one request's latency, `latency` one with its
unit (`1m2s`), `step` the training step, any other name a metric.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
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
from dlsched.runtime.progress.numbers import duration_s, finite_doubles, number
from dlsched.runtime.progress.samples import STEP, Samples, StepFrom, When
from dlsched.runtime.progress.sidecar import READ_BYTES, READ_LINES, SourceReading

_log = logging.getLogger(__name__)

PATTERN_CHARACTERS = 256
PROGRAM_STEPS = 200
"""Bound of a compiled pattern's size: 64 KiB of log match within 0.1 s."""

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 30.0

_PROGRAM_BYTES = 256 * 1024
_SAID_CHARACTERS = 80
_DURATION = "latency"
_LATENCIES_S = {"latency_s": 1.0, "latency_ms": 1e-3, "latency_us": 1e-6, _DURATION: 1.0}


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
            unfit = name in RESERVED and name not in (STEP, *_LATENCIES_S)
            # RE2 accepts letters of any script in names, and here each byte is a letter.
            unfit = unfit or not (name.isascii() and name.isidentifier())
            if unfit or len(name) > NAME_CHARACTERS:
                raise ValueError(f"{shown(text)}: group {shown(name)}: not a name of a metric")

    @property
    def metrics(self) -> frozenset[str]:
        """The groups that are neither a latency nor the step."""
        return frozenset(self._groups) - _LATENCIES_S.keys() - {STEP}

    @property
    def has_step(self) -> bool:
        return STEP in self._groups

    @property
    def has_latency(self) -> bool:
        return not _LATENCIES_S.keys().isdisjoint(self._groups)

    def read(self, line: bytes) -> Mapping[str, float] | None:
        """The numbers of the groups in that line; None where it does not match. Raises ValueError,
        in one line, for a match that is no valid number.

        A metric may be `nan` or `inf`, also where the pattern asks for digits.
        """
        refusal: ValueError | None = None
        for spelled in (*finite_doubles(line), line):
            match = self._expression.search(spelled)
            if match is not None:
                try:
                    return self._numbers(line, match)
                except ValueError as why:
                    refusal = why
        if refusal is not None:
            raise refusal
        return None

    def _numbers(self, line: bytes, match: Any) -> Mapping[str, float]:
        spans = ((name, match.span(index)) for name, index in self._groups.items())
        return {
            name: _number(name, line[start:end]) for name, (start, end) in spans if end > start >= 0
        }


def check_pattern(text: str, source: StepFrom | None = None, only: When | None = None) -> Pattern:
    """The valid pattern. Raises ValueError, in one line, for an invalid one, or where it lacks what
    `source` and `only` need."""
    pattern = Pattern(text)
    if only is not None:
        for name in only.groups:
            if name not in pattern.metrics:
                raise ValueError(f"when: {shown(name)}: the pattern has no such group")
        if pattern.metrics <= set(only.groups):
            raise ValueError("when: the pattern has no other metric")
    if source in (StepFrom.CARRIED, StepFrom.FOLLOWS) and not pattern.has_step:
        raise ValueError(f"step: {source}: the pattern has no group step")
    if source is StepFrom.EVALUATIONS and pattern.has_step:
        raise ValueError("step: evaluations: the pattern has a group step")
    return pattern


def _number(name: str, text: bytes) -> float:
    """The group's value: latencies in seconds."""
    metric = name != STEP and name not in _LATENCIES_S
    try:
        value = duration_s(text) if name == _DURATION else number(text, finite=not metric)
    except ValueError as why:
        raise ValueError(f"{name}: {why}") from None
    if name == STEP and not (0 <= value <= LAST_STEP and value.is_integer()):
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
        self.samples: list[Sample] = []
        self.bad_lines = 0
        self.refused: str | None = None
        self.bytes_left = READ_BYTES
        self.lines_left = READ_LINES

    @property
    def full(self) -> bool:
        return self.bytes_left <= 0 or self.lines_left <= 0

    def add(self, latencies_s: Iterable[float], sample: Sample | None) -> None:
        """Add what one line reports."""
        self.lines_left -= 1
        self.latencies_s += latencies_s
        if sample is not None:
            self.samples.append(sample)

    def refuse(self, why: str) -> None:
        self.bad_lines += 1
        self.refused = self.refused or why

    def reports(self, now_s: float, span_s: float) -> tuple[Report, ...]:
        """All numbers as reports, received at `now_s`."""
        reports = [
            Report(now_s, sample=replace(sample, received_s=now_s)) for sample in self.samples
        ]
        if self.latencies_s:
            reports.append(Report(now_s, latency=from_latencies(self.latencies_s), span_s=span_s))
        return tuple(reports)


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
        step: StepFrom | None = None,
        when: When | None = None,
        from_end: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`step`: where steps come from; None: from the metric's own line, or, where the pattern
        has no such group, the number of evaluations. `from_end`: skip what was printed before the
        first read. Raises ValueError for an invalid pattern."""
        self._open_log = open_log
        self._pattern = check_pattern(pattern, step, when)
        if step is None and not self._pattern.has_step:
            step = StepFrom.EVALUATIONS
        self._samples = Samples(step, when)
        self._clock = clock
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
                self._samples.missed()
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
            at_s = self._clock()
            results = [self._parsed(line) for line in lines.cut(chunk.replace(b"\r", b"\n"))]
            with self._lock:
                self._batch.bytes_left -= len(chunk)
                for each in results:
                    if self._batch.full:
                        break
                    if isinstance(each, str):
                        self._batch.refuse(each)
                    elif each is not None:
                        latencies = [each[name] for name in each if name in _LATENCIES_S]
                        rest = {k: v for k, v in each.items() if k not in _LATENCIES_S}
                        self._batch.add(latencies, self._samples.add(rest, at_s) if rest else None)
                if self._batch.full:
                    bound = f"{READ_BYTES >> 10} KiB or {READ_LINES} lines"
                    self._batch.refuse(f"more than {bound} in one cycle: the rest is not read")
                    self._samples.missed()
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

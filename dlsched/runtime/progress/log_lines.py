"""Turns a log's bytes into latencies and samples, and counts what the pattern found. Pure.

Patterns run on RE2, whose time is linear in the line, and are bounded, so that neither a label nor
a log can block the agent.

Numbers are as programs print them: finite ones, `nan` and `inf`, and Go's durations.

Groups: `latency_s`, `latency_ms` or `latency_us` is one request's latency, `latency` one with its
unit (`1m2s`), `step` the training step, any other name a metric.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any

from dlsched.config.metrics.pattern import LATENCIES_S, STEP, compiled, pattern_of
from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import LogFact, Report, Sample
from dlsched.model.sources import LabelFilter, Step, When
from dlsched.model.state import NAMES_KEPT
from dlsched.model.units import shown
from dlsched.report.buckets import LONGEST_S
from dlsched.report.lines import LAST_STEP, LINE_BYTES, NAME_CHARACTERS
from dlsched.runtime.progress.samples import Samples
from dlsched.runtime.progress.sidecar import READ_BYTES, READ_LINES, Lines, ReadBudget

NUMBER_CHARACTERS = 32
"""A longer text is no number that a program prints."""

_NOT_FINITE = re.compile(rb"(?<![A-Za-z0-9_])(?:nan|inf(?:inity)?)(?![A-Za-z0-9_])", re.IGNORECASE)
_DURATION = re.compile(
    r"(?:([0-9]+)h)?(?:([0-9]+)m(?!s))?(?:([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\xb5s|\u03bcs|ms|s))?"
)
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "\xb5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0}


def number(text: bytes, *, finite: bool = False) -> float:
    """The number in that text; without `finite` also `nan` or `inf` spelled out, as
    a diverged training does. Raises ValueError, in one line, for any other text."""
    value = math.nan
    with suppress(ValueError):
        if len(text) <= NUMBER_CHARACTERS and b"_" not in text:
            value = float(text)
            if math.isfinite(value) or (not finite and _NOT_FINITE.search(text)):
                return value
    raise ValueError(f"{shown(text.decode('latin-1'))}: not a finite number")


_MINUS = rb"\xe2\x88\x92"
"""The minus sign of typesetters, in UTF-8."""
_NARROW = rb"(?:\xc2\xa0|\xe2\x80\xaf|\xe2\x80\x89|\xe2\x80\x99)"
"""Blanks of typesetters and their apostrophe, in UTF-8: they separate thousands."""
_POINT = rb"(?:\xc2\xb7|\xe2\x8b\x85|\xd9\xab)"
"""Raised dots, which are decimal points or multiply, and the decimal point of Arabic, in UTF-8."""
_BEFORE = re.compile(
    rb"[0-9]['_.]?\Z|[0-9][eEdD][-+]?\Z|(?:^|[^\w.-])(?:-\.?|\.)\Z|%b\Z|[0-9](?:%b|%b)\Z"
    rb"|(?:^|[^\w.])0[xX]\Z" % (_MINUS, _NARROW, _POINT)
)
"""What stands before the rest of a number, a minus too; a hyphen within a word is none."""
_COLOUR = rb"(?:\x1b\[[0-9;]*m)*"
_BEHIND = re.compile(
    rb"[0-9]|['_.][0-9]|%b[eEdD](?:[-+]|%b)?[0-9]| ?[eE] ?[-+][0-9]|%b[0-9]{3}|%b[0-9]|#[INQS]"
    rb"| ?\xc3\x97 ?10|\*10| ?(?:\*|%b) ?10(?:\^|\*\*)|(?:\^|\*\*)[-+]?[0-9]"
    rb"|(?:[kKMGTP]i?B?|B)(?![A-Za-z0-9])| [kM](?![A-Za-z0-9_=:-])"
    % (_COLOUR, _MINUS, _NARROW, _POINT, _POINT)
)
"""The rest of a number: digits, an exponent, perhaps in another colour, a power of ten, or a prefix
such as `k`."""
_HEXADECIMAL = re.compile(rb"0[xX][0-9a-fA-F]")
_NANOS = rb"ns|nsecs?|nanos|nanosec(?:ond)?s?"
_MICROS = rb"[u\xb5\xbc]s(?:ecs?)?|micros|microsec(?:ond)?s?"
_MILLIS = rb"ms|msecs?|millis|millisec(?:ond)?s?"
_SECONDS = rb"s|secs?|seconds?"
_MINUTES = rb"m|mins?|minutes?|h|hrs?|hours?"


def _other_units(*units: bytes) -> re.Pattern[bytes]:
    """Matches one of these units, whole, and what shows that a number only begins a time. Both
    letters mu are two bytes of UTF-8, of which the first may differ."""
    any_unit = b"|".join((*units, _MINUTES))
    return re.compile(rb" ?[\xc2\xce]?(?:%b)\b|[mh][0-9]|:[0-9]" % any_unit, re.IGNORECASE)


_OTHER_UNITS = {
    "latency_s": _other_units(_NANOS, _MICROS, _MILLIS),
    "latency_ms": _other_units(_NANOS, _MICROS, _SECONDS),
    "latency_us": _other_units(_NANOS, _MILLIS, _SECONDS),
}
"""What is written behind a latency that is not of its group's unit, or not all of it."""
_CLOCK = re.compile(rb"[0-9]:[0-5][0-9](?:\.[0-9]*)?\Z")
"""Seconds with the minutes before them."""
_LONGER_UNITS = re.compile(rb"[0-9] ?(?:%b),? ?\Z" % _MINUTES, re.IGNORECASE)
"""A longer unit before the number, with all between them."""
_LONGER_UNITS_CHARACTERS = 11
_SMALLER_UNITS = {
    b"h": re.compile(rb",? ?[0-9.]+ ?(?:m|s|ms)\b"),
    b"m": re.compile(rb",? ?[0-9.]+ ?(?:s|ms)\b"),
    b"s": re.compile(rb" [0-9.]+ ?(?:ms|us|ns)\b"),
}
"""The rest of a duration whose parts stand apart, behind one that ends in that unit."""
_WHOLE_UNITS = re.compile(rb"(?:\A|[hm])[0-9]+([hms])\Z")
"""A duration to which smaller units may be added: it has no decimals."""
_BEFORE_COMMA = re.compile(rb"(?<![0-9.,])[0-9]+(?:[.,][0-9]{3})*,\Z")
_BEHIND_COMMA = re.compile(
    rb"[0-9]+(?![0-9]|[.,][0-9])|[0-9]{3}(?:,[0-9]{3})*(?:\.[0-9]+)?(?![0-9]|[.,][0-9])"
)
"""Decimals or thousands. Behind the comma of a list or of a table's row another one follows, or a
decimal point."""


def is_cut(
    line: bytes, start: int, end: int, *, apart: Collection[int] = (), time: bool = False
) -> bool:
    """Whether the number at [start, end) of the line is a part of a longer one. `apart`: where
    other numbers begin or end, so that a comma before or behind only separates. `time`: it is one,
    to which longer units before it and smaller ones behind it belong."""
    before, behind = line[max(0, start - 4) : start], line[end : end + NUMBER_CHARACTERS]
    if _BEFORE.search(before) or _BEHIND.match(behind):
        return True
    if line[start:end] == b"0" and _HEXADECIMAL.match(line, start):
        return True
    if time and _is_part_of_time(line, start, end):
        return True
    cuts = [start - 1] if before.endswith(b",") else []
    cuts += [end] if behind.startswith(b",") else []
    return any(
        not {at, at + 1} <= {start, end, *apart}
        and _BEFORE_COMMA.search(line[max(0, at - NUMBER_CHARACTERS) : at + 1])
        and _BEHIND_COMMA.match(line[at + 1 : at + 1 + NUMBER_CHARACTERS])
        for at in cuts
    )


def _is_part_of_time(line: bytes, start: int, end: int) -> bool:
    """Whether hours or minutes stand before the time at [start, end), or smaller units behind."""
    if _LONGER_UNITS.search(line[max(0, start - _LONGER_UNITS_CHARACTERS) : start]):
        return True
    if _CLOCK.search(line[max(0, start - 2) : end]):
        return True
    last = _WHOLE_UNITS.search(line[start:end])
    behind = line[end : end + NUMBER_CHARACTERS]
    return last is not None and _SMALLER_UNITS[last[1]].match(behind) is not None


def duration_s(text: bytes) -> float:
    """The seconds of a duration with units: `143ms`, `1m2s`, `1h2m3.5s`. Raises ValueError, in one
    line, for any other text."""
    written = text.decode("utf-8", "replace")
    match = _DURATION.fullmatch(written) if 0 < len(text) <= NUMBER_CHARACTERS else None
    if match is None:
        written = shown(text.decode("latin-1"))
        raise ValueError(f"{written}: not a duration with units, such as 143ms or 1m2s")
    hours, minutes, rest, unit = match.groups()
    below_s = float(rest) * _UNITS_S[unit] if rest else 0.0
    return 3600.0 * float(hours or 0) + 60.0 * float(minutes or 0) + below_s


def finite_doubles(line: bytes) -> tuple[bytes, ...]:
    """The line with each `nan` and `inf` replaced by digits of the same length, as patterns for
    numbers expect them: first with a decimal point, then without. Empty: it has neither."""
    lower = line.lower()
    # Nearly all lines have neither, and this costs a tenth of the expression.
    if (b"nan" not in lower and b"inf" not in lower) or not _NOT_FINITE.search(line):
        return ()
    return (
        _NOT_FINITE.sub(lambda found: b"0.0".ljust(len(found.group()), b"0"), line),
        _NOT_FINITE.sub(lambda found: b"0" * len(found.group()), line),
    )


DURATION_GROUP = "latency"


class Failed(Enum):
    """What a line of a failed request says."""

    FAILED = "failed"


class Pattern:
    """A valid pattern; raises ValueError, in one line, for any other."""

    def __init__(self, text: str, failed: Sequence[LabelFilter] = ()) -> None:
        """`failed`: groups of text that say which lines are of failed requests."""
        self._expression, self.groups = pattern_of(text)
        self._failed = [
            (self.groups.pop(one.label), compiled(one.pattern), one.excludes) for one in failed
        ]

    def read(self, line: bytes) -> Mapping[str, float] | Failed | None:
        """The numbers of the groups in that line; None where it does not match; of a failed request
        none is read. Raises ValueError, in one line, for a match that is no valid number.

        A metric may be `nan` or `inf`, also where the pattern asks for digits.
        """
        refusal: ValueError | None = None
        for spelled in (*finite_doubles(line), line):
            match = self._expression.search(spelled)
            if match is not None:
                if self._failed and self._has_failed(line, match):
                    return Failed.FAILED
                try:
                    return self._numbers(line, match)
                except ValueError as why:
                    refusal = why
        if refusal is not None:
            raise refusal
        return None

    def _has_failed(self, line: bytes, match: Any) -> bool:
        for index, expression, excludes in self._failed:
            start, end = match.span(index)
            if start >= 0 and (expression.fullmatch(line[start:end]) is None) == excludes:
                return True
        return False

    def _numbers(self, line: bytes, match: Any) -> Mapping[str, float]:
        spans = {name: match.span(index) for name, index in self.groups.items()}
        ends = {place for span in spans.values() for place in span}
        numbers = {}
        for name, (start, end) in spans.items():
            if start < 0:
                continue
            if start == end:
                place = shown(line[max(0, start - 16) : end + 16].decode("latin-1"))
                raise ValueError(
                    f"{name}: the pattern's group is empty at {place}: there is no number to read"
                )
            numbers[name] = _number(name, line[start:end])
            if is_cut(line, start, end, apart=ends, time=name in LATENCIES_S):
                raise ValueError(_cut(name, line, start, end))
            other = _OTHER_UNITS.get(name)
            if other is not None and other.match(line[end : end + NUMBER_CHARACTERS]):
                place = shown(line[max(0, start - 16) : end + 16].decode("latin-1"))
                what = f"{place} has another unit than the group: let the group match the unit, too"
                raise ValueError(f"{name}: {what}, in a group named {DURATION_GROUP}")
        return numbers


def _cut(name: str, line: bytes, start: int, end: int) -> str:
    """Why a part of a number is not read, with the place in the line."""
    read = shown(line[start:end].decode("latin-1"))
    place = shown(line[max(0, start - 16) : end + 16].decode("latin-1"))
    what = f"{read} is only a part of the number in {place}"
    return f"{name}: {what}: let the group match the whole number, as [-+0-9.eE]+ does"


def _number(name: str, text: bytes) -> float:
    """The group's value: latencies in seconds."""
    metric = name != STEP and name not in LATENCIES_S
    try:
        value = duration_s(text) if name == DURATION_GROUP else number(text, finite=not metric)
    except ValueError as why:
        raise ValueError(f"{name}: {why}") from None
    if name == STEP and not (0 <= value <= LAST_STEP and value.is_integer()):
        raise ValueError(f"{name}: {value:g}: must be an integer, 0 to {LAST_STEP}")
    if name in LATENCIES_S:
        value *= LATENCIES_S[name]
        if not 0.0 <= value <= LONGEST_S:
            raise ValueError(f"{name}: not a latency")
    return value


_REDRAWN = b"\r"

_NAMED = re.compile(
    rb"""(?<![\w./-])([A-Za-z_][\w./-]{0,%d})["']? ?[:=] ?["']?[-+]?\.?[0-9]"""
    % (NAME_CHARACTERS - 1)
)
"""A name before a number. It begins a word, so that each byte is tried twice at most."""

Parsed = tuple[bytes | None, Mapping[str, float] | Failed | str | None]
"""A line (None: too long), and the numbers in it; that its request failed; why it is refused; or
None: it does not match."""


class LogBatch(ReadBudget):
    """The numbers since the last read, and how much may be added until the next."""

    def __init__(self) -> None:
        super().__init__()
        self.latencies_s: list[float] = []
        self.errors = 0
        self.samples: list[Sample] = []

    @property
    def full(self) -> bool:
        return self.bytes_left <= 0 or self.lines_left <= 0

    def add(self, latencies_s: Iterable[float], sample: Sample | None) -> None:
        self.lines_left -= 1
        self.latencies_s += latencies_s
        if sample is not None:
            self.samples.append(sample)

    def reports(self, now_s: float, span_s: float) -> tuple[Report, ...]:
        reports = [
            Report(now_s, sample=replace(sample, received_s=now_s)) for sample in self.samples
        ]
        if self.latencies_s or self.errors:
            latency = from_latencies(self.latencies_s, self.errors)
            reports.append(Report(now_s, latency=latency, span_s=span_s))
        return tuple(reports)


class LogLines:
    """The lines of one container start."""

    def __init__(
        self,
        pattern: str,
        step: Step | None = None,
        when: When | None = None,
        names: Mapping[str, str] | None = None,
        failed: Sequence[LabelFilter] = (),
    ) -> None:
        """`step`: where steps come from; None: from the metric's own line, or, where the pattern
        has no such group, the number of evaluations. `names`: metrics by the groups that stand for
        them, if those have other names. `failed`: as in `Pattern`. Raises ValueError for an invalid
        pattern."""
        self._pattern = Pattern(pattern, failed)
        self.hides_failures = not failed and not LATENCIES_S.keys().isdisjoint(self._pattern.groups)
        if step is None and STEP not in self._pattern.groups:
            step = "evaluations"
        self._samples = Samples(step, when)
        self._names = dict(names or {})
        self._cut = Lines(LINE_BYTES)
        self._lines = self._matched = 0
        self._example: str | None = None
        self._named: dict[str, None] | None = {}
        """Names before numbers; None: a metric was read, so they do not matter."""
        self._no_metrics = {STEP, *(when or ())}

    @property
    def fact(self) -> LogFact:
        example = None if self._matched else self._example
        named = tuple(self._named or ())
        return LogFact(self._lines, self._matched, example, named)

    def begin(self) -> None:
        """The log is opened: what was printed before may be missing."""
        self._cut = Lines(LINE_BYTES)
        self._samples.missed()

    def before(self, printed: bytes, *, cut: bool) -> list[Parsed]:
        """The lines printed before the log is opened; `cut`: these bytes begin within a line."""
        self._cut = Lines(LINE_BYTES, amid=cut)
        return self.parsed(printed)

    def take_before(self, lines: Sequence[Parsed], at_s: float, batch: LogBatch) -> None:
        """Add the last of these lines' samples: history has no bad lines and no present latency."""
        found: deque[Sample] = deque(maxlen=READ_LINES)
        for line, numbers in lines:
            self._count(line, numbers)
            if isinstance(numbers, Mapping):
                sample = self._sample(line, numbers, at_s)
                if sample is not None:
                    found.append(sample)
        batch.samples += found

    def parsed(self, chunk: bytes) -> list[Parsed]:
        """The lines that end in this chunk. It takes the time, and changes nothing else."""
        # A progress bar overwrites its line with carriage returns: it is a line that begins so.
        whole = self._cut.cut(chunk.replace(b"\r", b"\n" + _REDRAWN))
        return [(line, self._numbers(line)) for line in whole]

    def take(self, chunk: bytes, lines: Sequence[Parsed], at_s: float, batch: LogBatch) -> None:
        """Add the chunk's lines, which arrived at that time, to the batch, until it is full."""
        batch.bytes_left -= len(chunk)
        for line, numbers in lines:
            if batch.full:
                break
            self._count(line, numbers)
            if isinstance(numbers, str):
                batch.refuse(numbers)
            elif isinstance(numbers, Failed):
                batch.lines_left -= 1
                batch.errors += 1
            elif numbers is not None:
                latencies = [numbers[name] for name in numbers if name in LATENCIES_S]
                batch.add(latencies, self._sample(line, numbers, at_s))
        if batch.full:
            bound = f"{READ_BYTES >> 10} KiB or {READ_LINES} lines"
            batch.refuse(f"the log grew by more than {bound} in one cycle: the rest is not read")
            self._samples.missed()

    def _sample(
        self, line: bytes | None, numbers: Mapping[str, float], at_s: float
    ) -> Sample | None:
        redrawn = line is not None and line.startswith(_REDRAWN)
        rest = {
            self._names.get(name, name): value
            for name, value in numbers.items()
            if name not in LATENCIES_S
        }
        return self._samples.add(rest, at_s, redrawn=redrawn) if rest else None

    def _numbers(self, line: bytes | None) -> Mapping[str, float] | Failed | str | None:
        if line is None:
            return f"a line of the log has more than {LINE_BYTES} bytes, so it is not read"
        try:
            return self._pattern.read(line.removeprefix(_REDRAWN))
        except ValueError as why:
            return str(why)

    def _count(
        self, line: bytes | None, numbers: Mapping[str, float] | Failed | str | None
    ) -> None:
        if line is not None and not line.strip():
            return
        self._lines += 1
        if line is not None and numbers is not None:
            self._matched += 1
        elif line is not None and self._example is None:
            self._example = shown(line.decode("utf-8", "replace").strip())
        if isinstance(numbers, Mapping) and numbers.keys() - self._no_metrics:
            self._named = None
        elif line is not None and self._named is not None and len(self._named) < NAMES_KEPT:
            for name in _NAMED.findall(line):
                self._named[name.decode()] = None
                if len(self._named) == NAMES_KEPT:
                    break

"""Regular expressions for the lines that a container prints, with bounds.

Patterns run on RE2, whose time is linear in the line, and are bounded, so that neither a label nor
a log can block the agent.

Numbers are as programs print them: finite ones, `nan` and `inf`, and Go's durations.

Groups: `latency_s`, `latency_ms` or `latency_us` is one request's latency, `latency` one with its
unit (`1m2s`), `step` the training step, any other name a metric.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dlsched.config.metrics.pattern import LATENCIES_S, STEP, check_use, pattern_of
from dlsched.model.sources import Step, When
from dlsched.model.units import shown
from dlsched.report.buckets import LONGEST_S
from dlsched.report.lines import LAST_STEP

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


class Pattern:
    """A valid pattern; raises ValueError, in one line, for any other."""

    def __init__(self, text: str) -> None:
        self._expression, self._groups = pattern_of(text)

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    @property
    def has_step(self) -> bool:
        return STEP in self._groups

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


def check_pattern(text: str, step: Step | None = None, only: When | None = None) -> Pattern:
    """The valid pattern. Raises ValueError, in one line, for an invalid one, or where it lacks what
    `step` and `only` need."""
    pattern = Pattern(text)
    check_use(pattern.groups, step, only)
    return pattern


def _number(name: str, text: bytes) -> float:
    """The group's value: latencies in seconds."""
    metric = name != STEP and name not in LATENCIES_S
    try:
        value = duration_s(text) if name == DURATION_GROUP else number(text, finite=not metric)
    except ValueError as why:
        raise ValueError(f"{name}: {why}") from None
    if name == STEP and not (0 <= value <= LAST_STEP and value.is_integer()):
        raise ValueError(f"{name}: {value:g}: an integer, 0 to {LAST_STEP}")
    if name in LATENCIES_S:
        value *= LATENCIES_S[name]
        if not 0.0 <= value <= LONGEST_S:
            raise ValueError(f"{name}: not a latency")
    return value

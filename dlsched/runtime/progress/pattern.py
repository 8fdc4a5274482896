"""Regular expressions for the lines that a container prints, with bounds.

Patterns run on RE2, whose time is linear in the line, and are bounded, so that neither a label nor
a log can block the agent.

Groups: `latency_s`, `latency_ms` or `latency_us` is one request's latency, `latency` one with its
unit (`1m2s`), `step` the training step, any other name a metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlsched.config.metrics.pattern import LATENCIES_S, STEP, check_use, pattern_of
from dlsched.model.sources import Step, When
from dlsched.model.units import shown
from dlsched.report.buckets import LONGEST_S
from dlsched.report.lines import LAST_STEP
from dlsched.runtime.progress.numbers import duration_s, finite_doubles, is_cut, number

_DURATION = "latency"


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
        spans = {name: match.span(index) for name, index in self._groups.items()}
        ends = {place for span in spans.values() for place in span}
        numbers = {}
        for name, (start, end) in spans.items():
            if not end > start >= 0:
                continue
            numbers[name] = _number(name, line[start:end])
            if is_cut(line, start, end, apart=ends, time=name in LATENCIES_S):
                raise ValueError(_cut(name, line, start, end))
        return numbers


def check_pattern(text: str, step: Step | None = None, only: When | None = None) -> Pattern:
    """The valid pattern. Raises ValueError, in one line, for an invalid one, or where it lacks what
    `step` and `only` need."""
    pattern = Pattern(text)
    check_use(pattern.groups, step, only)
    return pattern


def _cut(name: str, line: bytes, start: int, end: int) -> str:
    """Why a part of a number is not read, with the place in the line."""
    read = shown(line[start:end].decode("latin-1"))
    place = shown(line[max(0, start - 16) : end + 16].decode("latin-1"))
    what = f"{read} is only a part of the number in {place}"
    return f"{name}: {what}: take all of it, as [-+0-9.eE]+ does"


def _number(name: str, text: bytes) -> float:
    """The group's value: latencies in seconds."""
    metric = name != STEP and name not in LATENCIES_S
    try:
        value = duration_s(text) if name == _DURATION else number(text, finite=not metric)
    except ValueError as why:
        raise ValueError(f"{name}: {why}") from None
    if name == STEP and not (0 <= value <= LAST_STEP and value.is_integer()):
        raise ValueError(f"{name}: {value:g}: an integer, 0 to {LAST_STEP}")
    if name in LATENCIES_S:
        value *= LATENCIES_S[name]
        if not 0.0 <= value <= LONGEST_S:
            raise ValueError(f"{name}: not a latency")
    return value

"""Regular expressions for the lines that a container prints, with bounds.

Patterns run on RE2, whose time is linear in the line, and are bounded, so that neither a label nor
a log can block the agent.

Groups: `latency_s`, `latency_ms` or `latency_us` is one request's latency, `latency` one with its
unit (`1m2s`), `step` the training step, any other name a metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import re2

from dlsched.model.units import shown
from dlsched.report.buckets import LONGEST_S
from dlsched.report.lines import LAST_STEP, METRICS_PER_LINE, NAME_CHARACTERS, RESERVED
from dlsched.runtime.progress.numbers import duration_s, finite_doubles, number
from dlsched.runtime.progress.samples import STEP, Step, When

PATTERN_CHARACTERS = 256
PROGRAM_STEPS = 200
"""Bound of a compiled pattern's size: 64 KiB of log match within 0.1 s."""

_PROGRAM_BYTES = 256 * 1024
_SAID_CHARACTERS = 80
_DURATION = "latency"
LATENCIES_S = {"latency_s": 1.0, "latency_ms": 1e-3, "latency_us": 1e-6, _DURATION: 1.0}
"""The groups of a latency, with their units."""


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
            unfit = name in RESERVED and name not in (STEP, *LATENCIES_S)
            # RE2 accepts letters of any script in names, and here each byte is a letter.
            unfit = unfit or not (name.isascii() and name.isidentifier())
            if unfit or len(name) > NAME_CHARACTERS:
                raise ValueError(f"{shown(text)}: group {shown(name)}: not a name of a metric")

    @property
    def metrics(self) -> frozenset[str]:
        """The groups that are neither a latency nor the step."""
        return frozenset(self._groups) - LATENCIES_S.keys() - {STEP}

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self._groups)

    @property
    def has_step(self) -> bool:
        return STEP in self._groups

    @property
    def has_latency(self) -> bool:
        return not LATENCIES_S.keys().isdisjoint(self._groups)

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
    if only is not None:
        for name in only:
            if name not in pattern.metrics:
                raise ValueError(f"when: {shown(name)}: the pattern has no such group")
        if pattern.metrics <= set(only):
            raise ValueError("when: the pattern has no other metric")
    if step in ("carried", "follows") and not pattern.has_step:
        raise ValueError(f"step: {step}: the pattern has no group step")
    if step == "evaluations" and pattern.has_step:
        raise ValueError("step: evaluations: the pattern has a group step")
    return pattern


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

"""Regular expressions of users, on RE2: linear time, bounded size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import re2

from dlsched.model.units import shown
from dlsched.report.lines import METRICS_PER_LINE, NAME_CHARACTERS, RESERVED

PATTERN_CHARACTERS = 256
PROGRAM_STEPS = 200
"""Bound of a compiled pattern's size: 64 KiB of log match within 0.1 s."""

_PROGRAM_BYTES = 256 * 1024
_REASON_CHARACTERS = 80


def compiled(text: str) -> Any:
    """The RE2 expression for bytes, each of which is one character, since a log may have any
    encoding. Raises ValueError, in one line, for an invalid one."""
    if len(text) > PATTERN_CHARACTERS:
        raise ValueError(
            f"the pattern has {len(text)} characters, must have at most {PATTERN_CHARACTERS}"
        )
    options = re2.Options()
    options.max_mem = _PROGRAM_BYTES
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        expression: Any = re2.compile(text.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        why = error.args[0] if isinstance(error, re2.error) else "not UTF-8"
        # The message quotes the pattern.
        reason = ascii(why.decode("latin-1") if isinstance(why, bytes) else str(why))[1:-1]
        reason = reason[:_REASON_CHARACTERS]
        raise ValueError(f"{shown(text)} is not a regular expression of RE2: {reason}") from None
    if expression.programsize > PROGRAM_STEPS:
        size = expression.programsize
        raise ValueError(f"{shown(text)} compiles to {size} steps, must be at most {PROGRAM_STEPS}")
    return expression


STEP = "step"
LATENCIES_S = {"latency_s": 1.0, "latency_ms": 1e-3, "latency_us": 1e-6, "latency": 1.0}
"""The groups of a latency, with their units; `latency` is written with its own (`1m2s`)."""


def metrics_of(groups: Iterable[str]) -> frozenset[str]:
    """The groups that are neither a latency nor the step."""
    return frozenset(groups) - LATENCIES_S.keys() - {STEP}


def pattern_of(text: str) -> tuple[Any, dict[str, int]]:
    """The expression for log lines and its groups: names in their order, with their numbers. Raises
    ValueError, in one line, for an invalid one."""
    expression = compiled(text)
    found = sorted(expression.groupindex.items(), key=lambda item: item[1])
    groups = {name.decode("latin-1"): int(index) for name, index in found}
    if not 0 < len(groups) <= METRICS_PER_LINE:
        wanted = f"1 to {METRICS_PER_LINE} named groups such as (?P<latency_ms>[0-9.]+)"
        raise ValueError(f"{shown(text)} must have {wanted}")
    for name in groups:
        unfit = name in RESERVED and name not in (STEP, *LATENCIES_S)
        # RE2 accepts letters of any script in names, and here each byte is a letter.
        unfit = unfit or not (name.isascii() and name.isidentifier())
        if unfit or len(name) > NAME_CHARACTERS:
            raise ValueError(f"{shown(text)}: the group {shown(name)} has no name of a metric")
    return expression, groups

"""Numbers as programs print them: finite ones, `nan` and `inf`, and Go's durations. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from contextlib import suppress

from dlsched.model.units import shown

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


_BEFORE = re.compile(rb"[0-9]['_.]?\Z|[0-9][eE][-+]?\Z|(?:^|[^\w.-])(?:-\.?|\.)\Z")
"""What stands before the rest of a number, a minus too; a hyphen within a word is none."""
_BEHIND = re.compile(rb"[0-9]|['_.][0-9]|[eE][-+]?[0-9]")
_LONGER_UNITS = re.compile(rb"[0-9][hm]\Z")
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
    other numbers begin or end, so that a comma before or behind only separates. `time`: hours or
    minutes before it belong to it."""
    before, behind = line[max(0, start - 3) : start], line[end : end + NUMBER_CHARACTERS]
    if _BEFORE.search(before) or _BEHIND.match(behind):
        return True
    if time and _LONGER_UNITS.search(before):
        return True
    cuts = [start - 1] if before.endswith(b",") else []
    cuts += [end] if behind.startswith(b",") else []
    return any(
        not {at, at + 1} <= {start, end, *apart}
        and _BEFORE_COMMA.search(line[max(0, at - NUMBER_CHARACTERS) : at + 1])
        and _BEHIND_COMMA.match(line[at + 1 : at + 1 + NUMBER_CHARACTERS])
        for at in cuts
    )


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

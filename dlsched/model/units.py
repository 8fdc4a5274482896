"""Quantities parsed and rendered: "1GiB", "50ms", "1.5" to bytes, seconds, cores, and back. Every
error is a ValueError of one line, with the value and the violated bound."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

SECONDS_MAX = 10 * 365 * 86_400.0
BYTES_MAX = 1 << 50
CORES_MIN = 0.01
"""The smallest quota that an engine accepts: 1000 us in a period of 100 ms."""
CORES_MAX = 4096.0

_NUMBER = r"(?:\d{1,15}(?:\.\d{0,9})?|\.\d{1,9})"
_PLAIN = re.compile(_NUMBER, re.ASCII)
_BYTES = re.compile(rf"({_NUMBER})\s?(?:([kmgt])?(?:i?b)?)", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(rf"({_NUMBER})\s?(us|µs|ms|s|min|m|h|d)", re.ASCII)
_DURATIONS = re.compile(rf"(?:{_DURATION.pattern}\s?)+", re.ASCII)

_BYTES_PER = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS_PER = {
    "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0,
    "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0,
}  # fmt: skip


def parse_bytes(text: str, *, low: int = 0) -> int:
    """Bytes of "1GiB", "512m" or "4096". As in Docker, every unit is a power of 1024. Raises
    ValueError if the text is not a size, or is outside low to BYTES_MAX."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{shown(text)} is not a size such as 512MiB or 1GiB")
    size_bytes = round(float(match[1]) * _BYTES_PER[(match[2] or "").lower()])
    if not low <= size_bytes <= BYTES_MAX:
        bound = f"{render_bytes(low)} to {render_bytes(BYTES_MAX)}"
        raise ValueError(f"{shown(text)} is out of bounds: {bound}")
    return size_bytes


def parse_seconds(text: str, *, low: float = 0.0, high: float = SECONDS_MAX) -> float:
    """Seconds of "50ms", "2h" or "1m30s". The unit is required, except for zero. Raises ValueError
    if the text is not a duration, or is outside low to high."""
    stripped = text.strip()
    if _PLAIN.fullmatch(stripped) and float(stripped) > 0:
        raise ValueError(f"{shown(text)} has no unit: write {stripped}s or {stripped}ms")
    if _PLAIN.fullmatch(stripped):
        duration_s = 0.0
    elif _DURATIONS.fullmatch(stripped):
        parts = _DURATION.findall(stripped)
        duration_s = round(sum(float(count) * _SECONDS_PER[unit] for count, unit in parts), 9)
    else:
        raise ValueError(f"{shown(text)} is not a duration such as 50ms, 30s, 1m30s or 2h")
    if not low <= duration_s <= high:
        bound = f"{render_seconds(low)} to {render_seconds(high)}"
        raise ValueError(f"{shown(text)} is out of bounds: {bound}")
    return duration_s


def render_bytes(size_bytes: float) -> str:
    """A size with three digits and a fitting unit: "1.5 GiB". `parse_bytes` reads it."""
    scaled = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(scaled) < 1023.5:
            return f"{_digits(scaled)} {unit}"
        scaled /= 1024
    return f"{_digits(scaled)} TiB"


def render_seconds(duration_s: float) -> str:
    """A duration with three digits or two units: "50 ms", "1.5 s", "2 h 5 min". `parse_seconds`
    reads it, except for a minus sign."""
    if duration_s < 0:
        return f"-{render_seconds(-duration_s)}"
    for unit, scale in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        limit = 59.95 if unit == "s" else 999.5
        if duration_s / scale < limit and (duration_s or unit == "s"):
            return f"{_digits(duration_s / scale)} {unit}"
    whole_s = round(duration_s)
    for unit, scale, lesser, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if whole_s >= scale:
            count, rest = divmod(round(whole_s / part), scale // part)
            return f"{count} {unit}" + (f" {rest} {lesser}" if rest else "")
    count, rest = divmod(whole_s, 60)
    return f"{count} min" + (f" {rest} s" if rest else "")


def render_within(lowest_s: float, highest_s: float | None) -> str:
    """A duration that lies between the two: "25 to 50 ms", "< 100 ms" from 0, "> 1 s" without
    `highest_s`."""
    if highest_s is None:
        return f"> {render_seconds(lowest_s)}"
    lowest, highest = render_seconds(lowest_s), render_seconds(highest_s)
    if lowest_s == 0.0:
        return f"< {highest}"
    unit = f" {highest.partition(' ')[2]}"
    return highest if lowest == highest else f"{lowest.removesuffix(unit)} to {highest}"


def render_percent(ratio: float) -> str:
    """A part of a whole in per cent, of two digits: "60 %", "1.4 %"; all alone is "100 %"."""
    percent = float(f"{100.0 * ratio:.2g}")
    return f"{min(percent, 99.0) if ratio < 1.0 else percent:g} %"


def render_cores(cores: float) -> str:
    """Cores with three digits: "0.25 cores", "1 core"."""
    digits = _digits(cores)
    return f"{digits} core" if digits == "1" else f"{digits} cores"


def render_quantile(quantile: float | None) -> str:
    """`p95` of .95; `mean` of None."""
    return "mean" if quantile is None else f"p{100 * quantile:g}"


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def some_of(texts: Sequence[str], most: int = 3) -> str:
    """The first few of them, and how many more there are: `a, b, c and 2 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def shown(value: object) -> str:
    """A value as error lines quote it: escaped, on one line, at most 60 characters."""
    quoted = ascii(value) if isinstance(value, str) else str(value)
    return quoted if len(quoted) <= 60 else f"{quoted[:57]}..."


def closest(name: str, names: Iterable[str]) -> list[str]:
    """Of names that a container chose, the five that are most like that one: escaped and cut."""

    from difflib import SequenceMatcher  # commands that never need it start faster

    def unlike(one: str) -> float:
        return -SequenceMatcher(None, name.lower(), one.lower()).ratio()

    return [ascii(one)[1:-1][:40] for one in sorted(dict.fromkeys(names), key=unlike)[:5]]


def render_address(address: str, port: int) -> str:
    """An IP address and port as in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _digits(number: float) -> str:
    """Three significant digits, without exponent or trailing zeros."""
    if abs(number) >= 999.5:
        return f"{number:.0f}"
    text = f"{number:.3g}"
    return f"{number:.6f}".rstrip("0").rstrip(".") if "e" in text else text


def same_cores(a: float | None, b: float | None) -> bool:
    """Equality within rounding (None: no ceiling): quotas are stored in us of a 100 ms period. It
    holds for shares of GPU time too, whose steps are hundredths."""
    if a is None or b is None:
        return a is b
    return abs(a - b) < 1e-4


def exceeds(cores: float, room_cores: float) -> bool:
    """Whether cores do not fit into a room, beyond rounding: 0.1 + 0.2 + 0.3 fit 0.6."""
    return cores > room_cores + 1e-9


def on_grain(cores: float | None, floor_cores: float, grain_cores: float) -> float | None:
    """The value that the engine would store: rounded down so sums hold, but at least the floor."""
    if cores is None:
        return None
    steps = math.floor(cores / grain_cores + 1e-6)
    least = math.ceil(floor_cores / grain_cores - 1e-6)
    return round(max(steps, least, 1) * grain_cores, 6)


def plain_text(text: str) -> str:
    """`text` without unprintable characters: containers must not steer terminals or forge lines."""
    if text.isprintable():  # nearly all are, and this takes a hundredth of the time
        return text
    return "".join(char if char.isprintable() else " " for char in text)

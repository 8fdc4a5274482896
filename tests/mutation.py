"""Bytes made from valid ones: cut, doubled, spliced, with words in them that readers trip over.

Owns the mutations that know no format, and those of JSON. All chance comes from the `Random` that
is handed in, so an input can be made again from its number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any


class Broken(Exception):
    """A promise of a reader that was not kept."""


NUMBERS = (
    "0", "-0", "1", "-1", "1.5", ".5", "5.", "007", "0x1F", "0o17", "0b1", "1_000", "1e3", "1e999",
    "-1e999", "1e-999", "NaN", "Infinity", "-Infinity", ".inf", ".nan", "1:30", "9" * 19, "9" * 400,
    "0."+"3" * 300, "9223372036854775807", "-9223372036854775808", "18446744073709551616",
    "1000000000", "0.01", "0.0099999", "4096", "4096.0000001", "64MiB", "1TiB", "50ms", "2h",
    "1m30s", "10y", "p95", "p100", "p99.99", "-5s", "1e5s", "\u0661\u0662", "\u00bd", "\u00b2",
    "\uff11",
)  # fmt: skip
"""Numbers and quantities at, around and far past what bounds there are, in all spellings."""

TEXTS = (
    "", " ", "\0", "\x1b[2J", "\x07", "\x7f", "\x85", "\r", "\r\n", "\n\n", "\t", "\u2028",
    "\u202e", "\ufeff", "\ufffe", "\U0001f600", "e\u0301", "\u00df", "\u0130", "%s%n", "{0}",
    "${HOME}", "$(id)", "../../etc/passwd", "/", "//", "/proc/self/environ", "yes", "no", "null",
    "~", "true", "A" * 300, "\\", "'", '"', "'; --", "\\ud800", "\\u0000", "\\x1b", "a=b=c", "=",
    ":", "::", ",",
)  # fmt: skip
"""Texts that end lines, steer terminals, leave folders, or mean something to another reader."""

BROKEN = (b"\xff", b"\xfe\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x28\xa1")
"""Bytes that are no UTF-8."""

ODD = tuple(one.encode() for one in (*NUMBERS, *TEXTS))
WORDS = ODD + BROKEN
_DIGITS = re.compile(rb"[0-9][0-9.]*")
_SCALAR = re.compile(rb"(?<=[:\[, ])[^\s:\[\]{},]+")


def mutated(rng: Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """`data` after a few mutations; `others` to splice with, `words` of the format to put in."""
    for _ in range(1 + min(int(rng.expovariate(0.8)), 7)):
        data = rng.choice(_MUTATIONS)(rng, data, others, words)
    return data


def _span(rng: Random, data: bytes, longest: int = 32) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + 1 + int(rng.expovariate(4 / longest)))


def _word(rng: Random, words: Sequence[bytes]) -> bytes:
    return rng.choice(words) if words and rng.random() < 0.6 else rng.choice(WORDS)


def _flip(rng: Random, data: bytes, _o: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _noise(rng: Random, data: bytes, _o: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + rng.randbytes(rng.randrange(1, 9)) + data[rng.choice((start, end)) :]


def _cut(rng: Random, data: bytes, _o: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _end(rng: Random, data: bytes, _o: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _repeat(rng: Random, data: bytes, _o: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    times = min(1 + int(rng.expovariate(0.2)), 40)
    return data[:end] + data[start:end] * times + data[end:]


def _splice(rng: Random, data: bytes, others: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _put(rng: Random, data: bytes, _o: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + _word(rng, words) + data[rng.choice((start, end)) :]


def _scalar(rng: Random, data: bytes, _o: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One value, as YAML, JSON and query strings write them, becomes another."""
    found = [match.span() for match in _SCALAR.finditer(data)]
    if not found:
        return _put(rng, data, _o, words)
    start, end = rng.choice(found)
    return data[:start] + _word(rng, words) + data[end:]


def _number(rng: Random, data: bytes, _o: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    found = [match.span() for match in _DIGITS.finditer(data)]
    if not found:
        return data
    start, end = rng.choice(found)
    return data[:start] + rng.choice(NUMBERS).encode() + data[end:]


def _lines(rng: Random, data: bytes, _o: Sequence[bytes], _w: Sequence[bytes]) -> bytes:
    """A line is doubled, lost, moved, or set in."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        case 1:
            del lines[at]
        case 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        case _:
            lines[at] = rng.choice((b" ", b"  ", b"\t", b"- ", b"? ", b"# ")) + lines[at]
    return b"\n".join(lines)


Mutation = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]
_MUTATIONS: tuple[Mutation, ...] = (
    _flip, _noise, _cut, _end, _repeat, _splice, _put, _put, _scalar, _scalar, _number, _lines,
)  # fmt: skip


def mutated_json(rng: Random, value: Any, keys: Sequence[str]) -> Any:
    """A JSON value like this one, with a few of its parts replaced, lost, doubled or renamed."""
    value = json.loads(json.dumps(value))
    for _ in range(1 + min(int(rng.expovariate(0.8)), 5)):
        holders = [value, *_holders(value)]
        holder = rng.choice(holders)
        if isinstance(holder, dict):
            _change_mapping(rng, holder, keys)
        elif isinstance(holder, list):
            where = rng.randrange(len(holder) + 1)
            holder[where : where + rng.randrange(2)] = [odd_json(rng)] * rng.randrange(1, 4)
        else:
            value = odd_json(rng)
    return value


def odd_json(rng: Random) -> Any:
    """A value that hardly any field means."""
    match rng.randrange(8):
        case 0:
            return rng.choice((None, True, False, [], {}, [[]], {"": None}, "", 0))
        case 1:
            return rng.choice((1e308, -1e308, 5e-324, 2**63, -(2**63), 10**30, float("nan")))
        case 2:
            return float(rng.randrange(-5, 200)) / rng.choice((1, 3, 1000))
        case 3:
            return rng.randrange(-3, 1 << rng.randrange(1, 70))
        case 4:
            return rng.choice(NUMBERS)
        case 5:
            nested: Any = 1
            for _ in range(rng.randrange(1, 30)):
                nested = [nested] if rng.random() < 0.5 else {"a": nested}
            return nested
        case 6:
            return "".join(
                chr(rng.choice((rng.randrange(128), rng.randrange(0xD7FF)))) for _ in "four"
            )
        case _:
            return rng.choice(TEXTS)


def _holders(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [part for part in parts if isinstance(part, (dict, list))]
    return found + [inner for part in found for inner in _holders(part)]


def _change_mapping(rng: Random, holder: dict[str, Any], keys: Sequence[str]) -> None:
    there = list(holder)
    match rng.randrange(4) if there else 3:
        case 0:
            del holder[rng.choice(there)]
        case 1:
            holder[rng.choice(there)] = odd_json(rng)
        case 2:
            name = rng.choice(there)
            holder[rng.choice((*keys, rng.choice(TEXTS)))] = holder[name]
        case _:
            holder[rng.choice(keys)] = odd_json(rng)

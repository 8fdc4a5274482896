"""Delta coding of plain values: `patch(old, difference(old, new))` equals `new`. Pure.

A plain value is None, bool, int, float, str, list, or dict with str keys. The writer's side may
also hold tuples, `Counts` and frozen objects, which become plain as JSON.

A delta, as JSON: `[value]` replaces, `[]` removes a key, an int is added, a float replaces, a text
changes counts, an object changes these keys (of a dict) or, in a list, drops elements at the front
and adds some at the end (`drop`, `add`) or changes some in place (`at`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import lt
from typing import Any, NamedTuple

Plain = Any
"""As above; mypy has no use for the recursive type."""

_MISSING = object()
_RUN = re.compile(r"(-?\d+):((?:[0-9a-i]|\(-?\d+\))*)")
_COUNT = re.compile(r"[0-9a-i]|\(-?\d+\)")
_DIGITS = {**{n: str(n) for n in range(10)}, **{-n: chr(96 + n) for n in range(1, 10)}}
_VALUES = {text: number for number, text in _DIGITS.items()}
_GAP = 6
"""A hole in the indices wider than this is cheaper as a new run than as zeros."""


class Shape(NamedTuple):
    """A kind of frozen objects whose deltas are computed field by field, as for a dict."""

    names: tuple[str, ...]
    values: Callable[[Any], tuple[Plain, ...]]
    """The fields of one object, in that order."""


Shapes = Callable[[type], Shape | None]


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Nonzero counts by ascending index, with a compact text form of one character a count.

    `700:10b(12) 911:2` is 1 at 700, -2 at 702, 12 at 703 and 2 at 911: digits are positive, letters
    negative.
    """

    pairs: tuple[tuple[int, int], ...]
    members: frozenset[tuple[int, int]] = field(init=False)
    """The same pairs, for set differences."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", frozenset(self.pairs))

    def __str__(self) -> str:
        return render_counts(self.pairs)


def countable(pairs: tuple[tuple[int, int], ...]) -> bool:
    indices = [index for index, _ in pairs]
    return all(count for _, count in pairs) and all(map(lt, indices, indices[1:]))


def render_counts(pairs: tuple[tuple[int, int], ...] | list[tuple[int, int]]) -> str:
    parts: list[str] = []
    due: int | None = None
    for index, count in pairs:
        if due is None or index - due > _GAP:
            parts.append(f"{index}:" if due is None else f" {index}:")
        elif index > due:
            parts.append("0" * (index - due))
        parts.append(_DIGITS.get(count) or f"({count})")
        due = index + 1
    return "".join(parts)


def parse_counts(text: str) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for start, run in _RUN.findall(text):
        for index, letter in enumerate(_COUNT.findall(run), int(start)):
            count = _VALUES[letter] if len(letter) == 1 else int(letter[1:-1])
            if count:
                pairs.append((index, count))
    return pairs


def difference(old: Plain, new: Plain, shapes: Shapes = lambda _: None) -> Plain:
    """The delta from `old` to `new`; None when equal. Objects without a shape are replaced."""
    if old is new:
        return None
    kind = type(new)
    if kind is not type(old):
        return [new]
    if kind is dict:
        return _dict_difference(old, new, shapes)
    if kind is float:
        return None if old == new else new
    if kind is Counts:
        change = _counts_difference(old, new)
        return [new] if change is None else change or None
    shape = shapes(kind)
    if shape is not None:
        return _field_difference(old, new, shape, shapes)
    if old == new:
        return None
    if kind is list or kind is tuple:
        return _list_difference(old, new, shapes)
    if kind is int:
        return new - old
    return [new]


def patch(old: Plain, delta: Plain) -> Plain:
    """The value that `delta` leads to; `old` stays as it is, and unchanged parts are shared."""
    if isinstance(delta, list):
        return delta[0]
    if isinstance(delta, int):
        return old + delta
    if isinstance(delta, str):
        counts = dict(parse_counts(old))
        for index, change in parse_counts(delta):
            counts[index] = counts.get(index, 0) + change
        return render_counts([pair for pair in sorted(counts.items()) if pair[1]])
    if isinstance(delta, dict):
        return _dict_patch(old, delta) if isinstance(old, dict) else _list_patch(old, delta)
    return old if delta is None else delta


def _field_difference(old: Plain, new: Plain, shape: Shape, shapes: Shapes) -> Plain:
    delta: dict[str, Plain] = {}
    for name, before, value in zip(shape.names, shape.values(old), shape.values(new), strict=True):
        if before is value:
            continue
        if type(before) is float is type(value):  # the most frequent change: saves a call
            if before != value:
                delta[name] = value
        elif (change := difference(before, value, shapes)) is not None:
            delta[name] = change
    return delta or None


def _dict_difference(old: dict[str, Plain], new: dict[str, Plain], shapes: Shapes) -> Plain:
    delta: dict[str, Plain] = {}
    for key, value in new.items():
        before = old.get(key, _MISSING)
        if before is value:
            continue
        if before is _MISSING:
            delta[key] = [value]
        elif (change := difference(before, value, shapes)) is not None:
            delta[key] = change
    if len(old) + sum(key not in old for key in delta) > len(new):
        delta.update((key, []) for key in old if key not in new)
    return delta or None


def _dict_patch(old: Mapping[str, Plain], delta: Mapping[str, Plain]) -> dict[str, Plain]:
    new = dict(old)
    for key, change in delta.items():
        if change == []:
            new.pop(key, None)
        else:
            new[key] = patch(new.get(key), change)
    return new


def _list_difference(old: Sequence[Plain], new: Sequence[Plain], shapes: Shapes) -> Plain:
    """The delta of a sliding window (drop at the front, append at the end) or of its elements."""
    if new and old:
        for start, value in enumerate(old):
            if value == new[0] and old[start:] == new[: len(old) - start]:
                return {"drop": start, "add": new[len(old) - start :]}
    if len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        changes = ((str(i), difference(*pair, shapes)) for i, pair in pairs)
        return {"at": {index: change for index, change in changes if change is not None}}
    return [new]


def _list_patch(old: list[Plain], delta: Mapping[str, Plain]) -> list[Plain]:
    if "at" not in delta:
        return [*old[delta["drop"] :], *delta["add"]]
    new = list(old)
    for index, change in delta["at"].items():
        new[int(index)] = patch(new[int(index)], change)
    return new


@lru_cache(maxsize=8)  # a job's window and its recent sketch are often the same
def _counts_difference(old: Counts, new: Counts) -> str | None:
    change = dict(new.members - old.members)
    for index, count in old.members - new.members:
        change[index] = change.get(index, 0) - count
    return None if len(change) > len(new.pairs) else render_counts(sorted(change.items()))

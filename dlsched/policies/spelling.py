"""A policy with its parameters in one word: `NAME?key=value&key=value`.

Owns the spelling. It must not know any policy: what a value means, the parameter's default tells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

from dlsched.model.errors import PolicyError


def split(spelled: str) -> tuple[str, Mapping[str, str]]:
    """The name (or `module:Class`), and its parameters as they are written.

    Raises PolicyError for what is no `key=value`, and for a key that comes twice.
    """
    name, asks, query = spelled.partition("?")
    written: dict[str, str] = {}
    for item in query.split("&") if asks else ():
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise PolicyError(
                f"policy {name}: {item!r} is no parameter; write NAME?key=value&key=value"
            )
        if key in written:
            raise PolicyError(f"policy {name}: {key} is given twice")
        written[key] = value
    return name, written


def typed(words: str, default: object) -> object:
    """The value of these words, of the kind of the parameter's default.

    Raises ValueError naming the kind that was meant.
    """
    if isinstance(default, bool):
        if words not in ("true", "false"):
            raise ValueError("must be true or false")
        return words == "true"
    if isinstance(default, int | float):
        kind = type(default)
        value: float = math.nan
        with suppress(ValueError):
            # A whole number can be larger than any that one can reckon with.
            if math.isfinite(float(words)):
                value = kind(words)
        if "_" in words or math.isnan(value):
            raise ValueError(f"must be {'a whole' if kind is int else 'a'} number")
        return value
    return words

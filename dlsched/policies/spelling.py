"""Parser of a policy with its parameters: `NAME?key=value&key=value`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

from dlsched.model.errors import PolicyError


def split(spelled: str) -> tuple[str, Mapping[str, str]]:
    """The name (or `module:Class`), and the values as text. Raises PolicyError for an item that is
    not `key=value`, and for a repeated key."""
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


def typed(text: str, default: object) -> object:
    """The value of this text, of the type of the parameter's default. Raises ValueError, which
    names the expected type."""
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError("must be true or false")
        return text == "true"
    if isinstance(default, int | float):
        kind = type(default)
        value: float = math.nan
        with suppress(ValueError):
            # An integer can be too large for a float.
            if math.isfinite(float(text)):
                value = kind(text)
        if "_" in text or math.isnan(value):
            raise ValueError(f"must be {'a whole' if kind is int else 'a'} number")
        return value
    return text

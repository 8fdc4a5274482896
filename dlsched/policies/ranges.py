"""Checks of a policy's parameters: each says what is wrong, and what the value must be."""

from __future__ import annotations

import math
from collections.abc import Callable


def above_zero(parameters: object, *names: str) -> None:
    _refuse(parameters, names, lambda value: 0 < value < math.inf, "must be above 0 and finite")


def not_negative(parameters: object, *names: str) -> None:
    _refuse(parameters, names, lambda value: 0 <= value < math.inf, "must be at least 0 and finite")


def at_least(least: float, parameters: object, *names: str) -> None:
    _refuse(
        parameters,
        names,
        lambda value: least <= value < math.inf,
        f"must be at least {least:g} and finite",
    )


def between_zero_and_one(parameters: object, *names: str) -> None:
    """Without 0 and 1."""
    _refuse(parameters, names, lambda value: 0 < value < 1, "must be between 0 and 1")


def ratios(parameters: object, *names: str) -> None:
    """With 0 and 1."""
    _refuse(parameters, names, lambda value: 0 <= value <= 1, "must be 0 to 1")


def ratios_above_zero(parameters: object, *names: str) -> None:
    _refuse(parameters, names, lambda value: 0 < value <= 1, "must be above 0, at most 1")


def one_of(choices: tuple[str, ...], parameters: object, name: str) -> None:
    _refuse(parameters, (name,), lambda value: value in choices, f"must be {' or '.join(choices)}")


def _refuse(
    parameters: object, names: tuple[str, ...], fits: Callable[..., bool], must_be: str
) -> None:
    """Raise ValueError for the first parameter of these names that does not fit."""
    for name in names:
        value = getattr(parameters, name)
        if not fits(value):
            raise ValueError(f"{name} is {value!r}, {must_be}")

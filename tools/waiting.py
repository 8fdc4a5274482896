"""Owns the waiting for what another thread, process or host brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WITHIN_S = 120.0
"""Only against what never comes: a busy host takes ten times as long as a quiet one."""

Value = TypeVar("Value")


def until(
    condition: Callable[[], Value],
    what: str = "the condition",
    within_s: float = WITHIN_S,
    every_s: float = 0.02,
    so: Callable[[Value], object] = bool,
    shown: Callable[[], object] = str,
) -> Value:
    """Poll until the condition's value is true, or `so` is true of it, and return the value. Fails
    when the time has passed, with `what`, the last value, and what `shown` returns then."""
    deadline_s = time.monotonic() + within_s
    while not so(value := condition()):
        late = time.monotonic() >= deadline_s
        assert not late, f"not within {within_s:g} s: {what}; last: {value!r}\n{shown()}".strip()
        time.sleep(every_s)
    return value


def wait_for(
    condition: Callable[[], object],
    within_s: float,
    what: str,
    shown: Callable[[], object] = str,
) -> None:
    """The same for what comes slowly, such as containers."""
    until(condition, what, within_s, every_s=0.1, shown=shown)

"""How many steps a second a job takes on its present node."""

from __future__ import annotations

from typing import NamedTuple

MEASURED_S = 60.0
"""A speed counts when it was measured for so long, and over so many changes of the step."""
CHANGES_MIN = 3
STILL_STEPS = 3.0
"""A job that reports rarely stands still after the time of so many of its reports."""


class _Mark(NamedTuple):
    at_s: float
    step: int
    changes: int


class StepRate:
    """Steps a second on one node over the last one or two minutes, or longer where a job reports
    more rarely."""

    __slots__ = ("_first", "_heard_s", "_last", "_next")

    def __init__(self) -> None:
        self._first = self._next = self._last = _Mark(0.0, -1, 0)
        self._heard_s = 0.0

    def take(self, at_s: float, step: int) -> None:
        """A step that was reported at that time."""
        last, self._heard_s = self._last, max(at_s, self._heard_s)
        if step < last.step or last.step < 0:  # it began, maybe again
            self._first = self._next = self._last = _Mark(at_s, step, 0)
        elif step > last.step and at_s > last.at_s:
            self._last = _Mark(at_s, step, last.changes + 1)
            if _is_enough(self._next, self._last):
                self._first, self._next = self._next, self._last

    def per_s(self) -> float | None:
        """None: not measured for long enough, or it stands still: for longer than a minute, and
        than its steps took."""
        first, last = self._first, self._last
        if not _is_enough(first, last):
            return None
        step_s = (last.at_s - first.at_s) / (last.changes - first.changes)
        if self._heard_s - last.at_s > max(MEASURED_S, STILL_STEPS * step_s):
            return None
        return (last.step - first.step) / (last.at_s - first.at_s)


def _is_enough(first: _Mark, last: _Mark) -> bool:
    return last.at_s - first.at_s >= MEASURED_S and last.changes - first.changes >= CHANGES_MIN

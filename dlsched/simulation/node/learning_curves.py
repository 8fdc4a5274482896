"""Learning curves: the true value of a metric at each step, by formula or as measured."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Family = Literal["power", "exponential", "plateau", "drop", "restart"]

_ROUNDING = 1e-6
"""Tolerance, in steps, for rounding to a whole step."""
_BEFORE_DROP = 0.35
"""Fraction of the improvement that needs the learning rate's drop."""
_BUMP, _BUMP_PERIODS = 0.3, 1 / 6
"""A warm restart throws the curve back by this fraction, for this fraction of its period."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve from `start` towards `end`, which is its limit."""

    start: float
    end: float
    scale_steps: float
    family: Family = "power"
    exponent: float = 1.0
    """For `power` only."""
    at_step: int = 0
    """Start of a plateau, drop of the learning rate, or period of restarts."""
    for_steps: int = 0
    """Length of a plateau."""

    def value(self, step: float) -> float:
        """The metric after that many steps, without noise."""
        return self.end + (self.start - self.end) * self.left(step)

    def left(self, step: float) -> float:
        """Remaining fraction of the improvement, from 1 down."""
        return _SHAPES[self.family](self, step)

    def first_step(self, value: float, steps: int) -> int | None:
        """The first step at which the metric is that good; None if it is not within `steps`."""
        whole = self.start - self.end
        goal = (value - self.end) / whole if whole else math.inf
        # The curve is monotone, except where a restart throws it back.
        period = self.at_step if self.family == "restart" else steps + 1
        for first in range(0, steps + 1, period):
            last = min(first + period - 1, steps)
            if self.left(last) <= goal:
                return self._first_within(first, last, goal)
        return None

    def _first_within(self, low: int, high: int, goal: float) -> int:
        while low < high:
            middle = (low + high) // 2
            if self.left(middle) <= goal:
                high = middle
            else:
                low = middle + 1
        return low


@dataclass(frozen=True, slots=True)
class Measured:
    """A curve through measured values, linear in between, constant outside."""

    points: tuple[tuple[int, float], ...]
    """(step, value): at least one, steps ascending."""
    rises: bool = True
    """Whether higher values are better."""

    def value(self, step: float) -> float:
        after = bisect_right(self.points, step, key=lambda point: point[0])
        if after == 0 or after == len(self.points):
            return self.points[max(0, after - 1)][1]
        (step0, value0), (step1, value1) = self.points[after - 1 : after + 1]
        return value0 + (value1 - value0) * (step - step0) / (step1 - step0)

    def first_step(self, value: float, steps: int) -> int | None:
        """The first step at which the metric is that good, not before the first point; None if it
        is not within `steps`."""
        sign = 1.0 if self.rises else -1.0
        (first, at_first), goal = self.points[0], sign * value
        if sign * at_first >= goal:
            return first if first <= steps else None
        for (step0, value0), (step1, value1) in itertools.pairwise(self.points):
            if sign * value1 >= goal:
                # Below the goal until here, so this line is the first to cross it.
                part = (value - value0) / (value1 - value0)
                step = min(step1, step0 + math.ceil(part * (step1 - step0) - _ROUNDING))
                return step if step <= steps else None
        return None


def _power(curve: Curve, step: float) -> float:
    return float((1.0 + step / curve.scale_steps) ** -curve.exponent)


def _exponential(curve: Curve, step: float) -> float:
    return math.exp(-step / curve.scale_steps)


def _plateau(curve: Curve, step: float) -> float:
    stood = min(max(0.0, step - curve.at_step), curve.for_steps)
    return math.exp(-(step - stood) / curve.scale_steps)


def _drop(curve: Curve, step: float) -> float:
    before = min(step, curve.at_step)
    left = _BEFORE_DROP + (1.0 - _BEFORE_DROP) * math.exp(-before / curve.scale_steps)
    return left * math.exp(-max(0.0, step - curve.at_step) / curve.scale_steps)


def _restart(curve: Curve, step: float) -> float:
    left = math.exp(-step / curve.scale_steps)
    began = step // curve.at_step * curve.at_step
    if not began:
        return left
    bump = _BUMP * math.exp(-began / curve.scale_steps)
    return left + bump * math.exp(-(step - began) / (_BUMP_PERIODS * curve.at_step))


_SHAPES: dict[Family, Callable[[Curve, float], float]] = {
    "power": _power,
    "exponential": _exponential,
    "plateau": _plateau,
    "drop": _drop,
    "restart": _restart,
}

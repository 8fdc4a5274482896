"""How a learning curve goes on: when it reaches a value, and where it is at the end.

Owns the fit and its uncertainty. It must not know jobs, CPU or time: steps and values only.

A curve is taken for b + a s(k) after k steps, where s falls from 1 to 0 as one of a grid of shapes:

    (1 + k/k0)^-p    for scales k0 and exponents p          e^(-k/tau)    for scales tau

For each shape a and b are a straight line through the points (s(k), value), by least squares and
in closed form: with means m over the weights w of the points, a = cov_w(s, value) / var_w(s) and
b = m(value) - a m(s). No step of it is iterated, so all shapes are done at once.

How far each shape is believed follows from its squared residuals SSE, by the likelihood under
Gaussian noise: exp(-SSE / 2 s^2). The noise s^2 is that of the best shape, SSE / (n - 3), drawn
towards a small part of the way to the target while there are few points. A shape that leads away
from the target does not count; one whose b lies beyond what the metric can be (above 1 for a rate)
is fitted with b there.

Given a shape the curve at k is known up to s (1/W + (s(k) - m(s))^2 / (W var_w(s)))^(1/2), with W
the sum of weights. So each shape stands for three curves, at 0 and at 3^(1/2) times that to either
side, which weigh 2/3, 1/6 and 1/6: they have the mean, variance and kurtosis of the Gaussian.
Each of these curves reaches a tier at a step that follows by inverting s, or never. All of them
with their weights are the posterior that steps, chances and intervals are read from.

Where it is known how many steps there will be, that is evidence too: who sets a target means it to
be reached on the way. Each curve then counts by a broad log-normal of the part of the way at which
it reaches each tier.

Where a tier should have been reached and was not, as where evaluations level off at it, a curve is
late, and how late tells how long it goes on so: as long again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

TOTAL_STEPS = "total_steps"
"""The metric by which a training tells how many steps it will take in all."""

MOST_POINTS = 64
"""More are not fitted: `thinned` keeps no more."""
LEAST_POINTS = 3
"""Two values and a shape go through any two points."""

_SCALES = 28
_SCALE_OF_LAST = (0.05, 30.0)
"""Scales from and to, in parts of the last step; where the end is known, of the steps in all."""
_SCALE_OF_ALL = (0.02, 2.0)
_EXPONENTS = (0.5, 0.75, 1.0, 1.3, 1.8, 3.0)
_SPREAD = math.sqrt(3.0)
_CURVES = ((-_SPREAD, 1 / 6), (0.0, 2 / 3), (_SPREAD, 1 / 6))
_NOISE_RATIO, _NOISE_POINTS = 0.01, 2.0
"""Noise expected before any is seen, as a part of the way, and how many points that counts as."""
_TIER_AT = (1 / 3, 2 / 3)
_TIER_SPREAD = (0.7, 0.5)
"""Where users put their tiers, as a part of all steps: two points anywhere on the way are there in
the mean. And the spread of the logarithm."""
_NEVER_RATIO = 0.03
"""How much a curve counts that does not reach a tier on the way, against the most likely one."""
_LEAST = 1e-3
"""No other place of a tier counts less than this."""
_INTERVAL = (0.1, 0.9)
_LEAST_SPREAD, _LEAST_SLOPE = 1e-12, 1e-9
"""Below these a shape is flat over all points, or a curve along all of the way."""

Point = tuple[float, float, int]
"""A step, the mean value there, and of how many evaluations it is the mean."""


@dataclass(frozen=True, slots=True)
class Reach:
    """When a tier is reached. Steps count from the beginning of the training."""

    chance: float
    """That it is reached before the end."""
    steps: float
    """The mean over all curves; one that does not reach it counts with the end."""
    low_steps: float
    """With the next, the 80 % interval of those curves that reach it."""
    high_steps: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the points of a curve say."""

    deliver: Reach
    finish: Reach
    level: float
    """The median of the value at the end, and its 80 % interval."""
    low_level: float
    high_level: float


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> tuple[Point, ...]:
    """At most so many points, oldest first: of too many, neighbours in the older half are merged.

    Nothing of them is lost but where on the way between two neighbours each was.
    """
    kept = list(points)
    while len(kept) > most:
        half = len(kept) // 2 // 2 * 2
        pairs = zip(kept[0:half:2], kept[1:half:2], strict=True)
        kept[:half] = [_merged(one, other) for one, other in pairs]
    return tuple(kept)


def _merged(one: Point, other: Point) -> Point:
    count = one[2] + other[2]
    step = (one[0] * one[2] + other[0] * other[2]) / count
    return step, (one[1] * one[2] + other[1] * other[2]) / count, count


def learnt(
    points: Sequence[Point],
    tiers: tuple[float, float],
    end_step: float,
    *,
    told_steps: float | None = None,
    after_steps: tuple[float, float] = (0.0, 0.0),
    averaged: bool = True,
) -> Learnt | None:
    """The posterior from these points; None: there are too few, or they tell no direction.

    `tiers` are the values to deliver and to finish at; the second one lower: lower is better.
    `end_step` is where the training ends; `told_steps` the same where the training told it, which
    is evidence about the curve. At each of `after_steps` that tier was not reached: a curve by
    which it was is as late again. Without `averaged` only the best shape counts, as it is.
    """
    if len(points) < LEAST_POINTS:
        return None
    import numpy as np

    # From here on higher is better, and values are of the size of 1.
    sign = -1.0 if tiers[1] < tiers[0] else 1.0
    size = sign * max(*(abs(value) for _, value, _ in points), *map(abs, tiers), 1e-100)
    goals = (tiers[0] / size, tiers[1] / size)
    fits = _fitted(points, goals, size, told_steps)
    if fits is None:
        return None
    curves = _CURVES if averaged else ((0.0, 1.0),)
    belief = fits.belief
    if not averaged:
        belief = (np.arange(len(belief)) == belief.argmax()).astype(float)
    weight = np.concatenate([belief * part for _, part in curves])
    reached = [np.concatenate([fits.steps_to(goal, z) for z, _ in curves]) for goal in goals]
    if told_steps is not None:
        for tier, at_step in enumerate(reached):
            weight = weight * _density(at_step / told_steps, tier)
    else:
        weight = weight * _likely_apart(*reached)
    weight = weight / weight.sum()
    ends = size * np.concatenate([fits.value_at(end_step, z) for z, _ in curves])
    low, level, high = _quantiles(ends, weight, (_INTERVAL[0], 0.5, _INTERVAL[1]))
    deliver, finish = (
        _reach(_still_ahead(one, after_step, end_step), weight, end_step)
        for one, after_step in zip(reached, after_steps, strict=True)
    )
    return Learnt(deliver, finish, level, low, high)


@dataclass(frozen=True)
class _Fits:
    """Every shape with its a and b: one element a shape."""

    scale: Array
    power: Array
    base: Array
    slope: Array
    belief: Array
    noise: float
    held: Array
    """Whether b is held at the best value there can be."""
    whole: float
    mean: Array
    spread: Array
    square: Array

    def value_at(self, step: float, z: float) -> Array:
        """The value there, `z` standard deviations better."""
        import numpy as np

        left = _left(np.full(len(self.scale), step), self.scale, self.power)
        value: Array = self.base + self.slope * left + z * self._sd(left)
        return value

    def steps_to(self, goal: float, z: float) -> Array:
        """When that value is reached by the curve `z` standard deviations better."""
        import numpy as np

        middle = np.clip((goal - self.base) / self.slope, 0.0, 1.0)
        left = (goal - self.base - z * self._sd(middle)) / self.slope
        return _step(left, self.scale, self.power)

    def _sd(self, left: Array) -> Array:
        import numpy as np

        free = 1.0 / self.whole + (left - self.mean) ** 2 / self.spread
        sd: Array = np.sqrt(self.noise * np.where(self.held, left**2 / self.square, free))
        return sd


def _fitted(
    points: Sequence[Point], goals: tuple[float, float], size: float, told_steps: float | None
) -> _Fits | None:
    """Every shape fitted to these values over `size`; None: none leads towards the goals."""
    import numpy as np

    step, value, count = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    value = value / size
    scale, power = _shapes(float(step.max()), told_steps)
    left = _left(step[None, :], scale[:, None], power[:, None])
    whole = float(count.sum())
    mean, mean_value = left @ count / whole, float(value @ count / whole)
    off = left - mean[:, None]
    spread = off**2 @ count
    varies = spread > _LEAST_SPREAD
    spread = np.where(varies, spread, 1.0)
    slope = (off * (value - mean_value)) @ count / spread
    base = mean_value - slope * mean
    most = _most(value * size, goals, size)
    held = base > most
    square = np.maximum(left**2 @ count, _LEAST_SPREAD)
    if held.any():
        slope = np.where(held, (left * (value - most)) @ count / square, slope)
        base = np.where(held, most, base)
    leads = varies & (slope < -_LEAST_SLOPE)
    if not leads.any():
        return None
    scale, power, left, mean = scale[leads], power[leads], left[leads], mean[leads]
    base, slope, held = base[leads], slope[leads], held[leads]
    misses = (base[:, None] + slope[:, None] * left - value) ** 2 @ count
    way = max(goals[1] - float(value[0]), float(value.max() - value.min()))
    small = (_NOISE_RATIO * way) ** 2 * _NOISE_POINTS
    noise = (float(misses.min()) + small) / (max(len(points) - 3, 0) + _NOISE_POINTS)
    belief = np.exp(-(misses - misses.min()) / (2.0 * noise))
    return _Fits(
        scale,
        power,
        base,
        slope,
        belief,
        noise,
        held,
        whole,
        mean,
        spread[leads],
        square[leads],
    )


def _most(value: Array, goals: tuple[float, float], size: float) -> float:
    """The best that this metric can be, over `size`, as far as its values and tiers tell."""
    if size < 0:
        positive = value.min() >= 0.0 and goals[1] <= 0.0
        return 0.0 if positive else math.inf
    rate = value.min() >= 0.0 and value.max() <= 1.0 and goals[1] * size <= 1.0
    return 1.0 / size if rate else math.inf


def _shapes(last_step: float, told_steps: float | None) -> tuple[Array, Array]:
    """Scale and exponent of every shape; an infinite exponent is the exponential."""
    import numpy as np

    whole, (least, most) = (
        (last_step, _SCALE_OF_LAST) if told_steps is None else (told_steps, _SCALE_OF_ALL)
    )
    scales = max(whole, 1.0) * np.geomspace(least, most, _SCALES)
    powers = np.array([*_EXPONENTS, np.inf])
    return np.tile(scales, len(powers)), np.repeat(powers, len(scales))


def _left(step: Array, scale: Array, power: Array) -> Array:
    import numpy as np

    finite = np.where(np.isinf(power), 1.0, power)
    return np.where(
        np.isinf(power), np.exp(-step / scale), np.exp(-finite * np.log1p(step / scale))
    )


def _step(left: Array, scale: Array, power: Array) -> Array:
    """The inverse of `_left`; never (infinite) where nothing may be left."""
    import numpy as np

    log = np.log(np.where(left > 0, np.minimum(left, 1.0), 1.0))
    finite = np.where(np.isinf(power), 1.0, power)
    step = scale * np.where(np.isinf(power), -log, np.expm1(np.minimum(-log / finite, 50.0)))
    return np.where(left > 0, step, np.inf)


def _density(part: Array, tier: int) -> Array:
    """How likely users put that tier there, against the most likely place."""
    import numpy as np

    off = np.log(np.clip(part, 1e-6, 1e6) / _TIER_AT[tier]) / _TIER_SPREAD[tier]
    return np.where(part < 1.0, np.maximum(np.exp(-0.5 * off**2), _LEAST), _NEVER_RATIO)


def _likely_apart(deliver: Array, finish: Array) -> Array:
    """The same where the end is not known: how many times further the second tier is."""
    import numpy as np

    there = np.isfinite(finish)
    times = np.where(there, finish, 1.0) / np.where(there, np.maximum(deliver, 1e-6), 1.0)
    off = np.log(np.maximum(times, 1.0) * _TIER_AT[0] / _TIER_AT[1]) / _TIER_SPREAD[0]
    return np.where(there, np.maximum(np.exp(-0.5 * off**2), _LEAST), _NEVER_RATIO)


def _still_ahead(at_step: Array, after_step: float, end_step: float) -> Array:
    """Where a tier is that was not reached then: what is overdue is as late again, as with heavy
    tails, but at the end at the latest: what is late is not impossible."""
    import numpy as np

    late: Array = np.clip(2.0 * after_step - at_step, at_step, max(after_step, end_step))
    return np.where(at_step < min(after_step, end_step), late, at_step)


def _reach(at_step: Array, weight: Array, end_step: float) -> Reach:
    import numpy as np

    there = at_step <= end_step
    chance = float(weight[there].sum())
    mean = float((weight * np.minimum(at_step, end_step)).sum())
    if chance <= 1e-6:
        return Reach(0.0, mean, end_step, end_step)
    low, high = _quantiles(at_step[there], weight[there], _INTERVAL)
    return Reach(min(chance, 1.0), mean, low, high)


def _quantiles(values: Array, weights: Array, quantiles: Sequence[float]) -> tuple[float, ...]:
    """Weighted quantiles, linear between the middles of the weights."""
    import numpy as np

    values, weights = values[weights > 0], weights[weights > 0]
    order = np.argsort(values)
    sorted_weights = weights[order]
    place = (np.cumsum(sorted_weights) - 0.5 * sorted_weights) / sorted_weights.sum()
    return tuple(float(one) for one in np.interp(quantiles, place, values[order]))

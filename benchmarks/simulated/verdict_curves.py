"""Learning curves and targets that what is said of trainings is held against.

Owns the families and the draws: one for one seed. None of them is a family that the simulator's
traces are made of. It must not know what is said, nor by whom.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from itertools import accumulate

from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec
from dlsched.simulation.node.curves import Measured
from dlsched.simulation.node.workloads import SimulatedJob, TrainingLoad

STEPS, RUN_S = 3000, 600.0
"""Of each training, and how long they take alone."""
_POINTS = 300
"""A curve is drawn through so many."""

Way = list[float]
"""How good the metric is at evenly spaced points of the run: 0 where it begins, about 1 at its
best."""


def _points() -> list[float]:
    return [place / _POINTS for place in range(_POINTS + 1)]


def _power(chance: random.Random) -> Way:
    scale, power = chance.uniform(0.03, 0.5), chance.uniform(0.4, 2.0)
    return [1.0 - (1.0 + x / scale) ** -power for x in _points()]


def _exponential(chance: random.Random) -> Way:
    scale = chance.uniform(0.05, 0.4)
    return [1.0 - math.exp(-x / scale) for x in _points()]


def _plateau(chance: random.Random) -> Way:
    """An exponential that stands still for a while."""
    scale = chance.uniform(0.08, 0.3)
    at, width = chance.uniform(0.1, 0.5), chance.uniform(0.1, 0.5)
    return [1.0 - math.exp(-(x - min(max(0.0, x - at), width)) / scale) for x in _points()]


def _drop(chance: random.Random) -> Way:
    """It levels off, until the learning rate is divided once."""
    at, before = chance.uniform(0.3, 0.95), chance.uniform(0.3, 0.9)
    slow, fast = chance.uniform(0.05, 0.2), chance.uniform(0.01, 0.1)
    return [
        before * (1.0 - math.exp(-x / slow))
        + (0.0 if x < at else (1.0 - before) * (1.0 - math.exp(-(x - at) / fast)))
        for x in _points()
    ]


def _late(chance: random.Random) -> Way:
    """Next to nothing for long, then all at once: a logistic curve."""
    at, width = chance.uniform(0.2, 0.95), chance.uniform(0.01, 0.1)
    return [1.0 / (1.0 + math.exp(min(-(x - at) / width, 500.0))) for x in _points()]


def _flat(chance: random.Random) -> Way:
    """It learns a little at once, and never more."""
    level, scale = chance.uniform(0.02, 0.3), chance.uniform(0.005, 0.05)
    return [level * (1.0 - math.exp(-x / scale)) for x in _points()]


def _staircase(chance: random.Random) -> Way:
    """Two to four drops of the learning rate, each with a rise of its own."""
    drops = sorted(chance.uniform(0.1, 0.97) for _ in range(chance.randrange(2, 5)))
    rises = [(0.0, chance.uniform(0.3, 1.0)), *((at, chance.uniform(0.05, 0.6)) for at in drops)]
    scale, whole = chance.uniform(0.01, 0.08), math.fsum(rise for _, rise in rises)
    return [
        math.fsum(r * (1.0 - math.exp(-(x - at) / scale)) for at, r in rises if x >= at) / whole
        for x in _points()
    ]


def _decay(chance: random.Random) -> Way:
    """Slow at a constant rate, then lifted while the rate falls to zero over the last part."""
    begins, lift = 1.0 - chance.uniform(0.05, 0.4), chance.uniform(0.1, 0.7)
    scale, power = chance.uniform(0.02, 0.2), chance.uniform(0.3, 1.0)
    return [
        (1.0 - lift) * (1.0 - (1.0 + x / scale) ** -power)
        + lift * (max(0.0, x - begins) / (1.0 - begins)) ** chance_power
        for chance_power in [chance.uniform(0.5, 2.0)]
        for x in _points()
    ]


def _sudden(chance: random.Random) -> Way:
    """Two levels: it stays at the first, learnt early, and jumps to the second (Gompertz)."""
    first, at = chance.uniform(0.0, 0.5), chance.uniform(0.3, 0.98)
    soon, width = chance.uniform(0.01, 0.1), chance.uniform(0.005, 0.08)
    return [
        first * (1.0 - math.exp(-x / soon))
        + (1.0 - first) * math.exp(-math.exp(min(-(x - at) / width, 500.0)))
        for x in _points()
    ]


def _double_descent(chance: random.Random) -> Way:
    """It gets better, then worse, then better than ever."""
    at, width, depth = chance.uniform(0.2, 0.7), chance.uniform(0.05, 0.2), chance.uniform(0.1, 0.5)
    scale = chance.uniform(0.05, 0.3)
    return [
        1.0 - math.exp(-x / scale) - depth * math.exp(-(((x - at) / width) ** 2)) for x in _points()
    ]


def _overfit(chance: random.Random) -> Way:
    """It gets better and then worse, to the end."""
    scale, at = chance.uniform(0.05, 0.2), chance.uniform(0.2, 0.7)
    loss = chance.uniform(0.1, 0.8)
    return [1.0 - math.exp(-x / scale) - loss * max(0.0, x - at) for x in _points()]


def _spikes(chance: random.Random) -> Way:
    """A power law that is thrown back again and again, and wanders."""
    way, thrown, wander = [], 0.0, 0.0
    for one in _power(chance):
        thrown = chance.uniform(0.1, 0.6) if chance.random() < 0.02 else 0.8 * thrown
        wander = 0.9 * wander + chance.gauss(0.0, 0.01)
        way.append(one * (1.0 - thrown) + wander)
    return way


SHOWN: Mapping[str, Callable[[random.Random], Way]] = {
    "power": _power,
    "exponential": _exponential,
    "plateau": _plateau,
    "drop": _drop,
    "late": _late,
    "flat": _flat,
}
KEPT_BACK: Mapping[str, Callable[[random.Random], Way]] = {
    "staircase": _staircase,
    "decay": _decay,
    "sudden": _sudden,
    "double descent": _double_descent,
    "overfit": _overfit,
    "spikes": _spikes,
}
FAMILIES = {**SHOWN, **KEPT_BACK}


def drawn(family: str, seed: int) -> SimulatedJob:
    """One training of that family."""
    chance = random.Random(f"verdicts/{family}/{seed}")
    way = FAMILIES[family](chance)
    loss = chance.random() < 0.3
    if loss:
        start, end = chance.uniform(1.0, 8.0), chance.uniform(0.02, 0.9)
    else:
        start, end = chance.uniform(0.02, 0.4), chance.uniform(0.6, 0.97)
    best_so_far = list(accumulate(way, max))
    best, reachable = best_so_far[-1], chance.random() < 0.5
    # Where it is reached is drawn by what is gained on the way, not by the time that it takes.
    finish = best * chance.uniform(0.5, 0.999) if reachable else _above(best, chance)
    deliver = min(best, finish) * chance.uniform(0.3, 0.95)
    if not reachable and chance.random() < 0.3:
        deliver = best + chance.uniform(0.2, 0.9) * (finish - best)

    def value(part: float) -> float:
        return round(start + (end - start) * part, 6)

    curve = Measured(
        tuple((STEPS * place // _POINTS, value(part)) for place, part in enumerate(way)),
        rises=not loss,
    )
    small = 0.005 * abs(end - start)
    load = TrainingLoad(
        steps=STEPS,
        work_core_s=RUN_S / STEPS,
        evaluate_every=STEPS // chance.choice((20, 40, 60, 100)),
        curve=curve,
        noise=chance.choice((0.0, small, 3.0 * small)),
    )
    metric, tiers = "loss" if loss else "accuracy", (value(deliver), value(finish))
    step = curve.first_step(tiers[0], STEPS)
    # A deadline is drawn about when `deliver` is truly reached; else anywhere on the run.
    takes_s: float = load.work_core_s * (STEPS * chance.random() if step is None else step)
    deadline_s = takes_s * chance.uniform(0.3, 1.7) if chance.random() < 0.3 else None
    target = AccuracyTarget(metric, *tiers, deadline_s=deadline_s)
    spec = JobSpec(
        name=family.replace(" ", "-"),
        container=ContainerSpec(image="simulated"),
        target=target,
        container_digest=family,
        digest=family,
    )
    return SimulatedJob(spec, load)


def _above(best: float, chance: random.Random) -> float:
    """More than it ever reaches, by 1 to 50 % of the way."""
    return best + 0.01 * 50.0 ** chance.random()

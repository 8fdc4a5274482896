"""Forecasts of memory that fills, on drawn loads: leaks that were warned of, and false alarms; and
limits that are raised, on drawn mixes (`memory_mixes`).

Owns the loads. Each is what one container holds, as a part of its limit, read every 5 s. The seeds
are not those by which the constants of `estimate.memory` were chosen (1 to 40, and 201 to 500).

Four other sets were looked at in between: 101 to 130, 1001 to 1030, 2001 to 2060, 3001 to 3060.

    python -m benchmarks run memory               writes benchmarks/results/memory.json
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median

from benchmarks.options import options
from benchmarks.publish.results import finish, grouped
from benchmarks.simulated import memory_mixes
from dlsched.estimate.memory import MemoryTrend

LIMIT_BYTES = 8 << 30
EVERY_S, MINUTE_S = 5.0, 60.0
AHEAD_S = 5 * MINUTE_S
SLOW_S = 40 * MINUTE_S
AFTER_S = 4 * 3600.0
"""How long a load is observed that reaches no limit."""
SEEDS = tuple(range(70_001, 70_061))

Curve = Callable[[float], float]
"""The part of the limit that is held at a time, in seconds since the start."""


def _noisy(chance: random.Random, curve: Curve, least: float = 0.001) -> Curve:
    """With an allocator's noise: it wanders, and jumps."""
    jitter, wander = chance.uniform(least, 0.01), chance.uniform(least, 0.006)
    state = [0.0]

    def noisy(at_s: float) -> float:
        state[0] = 0.97 * state[0] + 0.25 * wander * chance.gauss(0.0, 1.0)
        return curve(at_s) + state[0] + chance.uniform(0.0, jitter)

    return noisy


def _collected(chance: random.Random, curve: Curve, most_s: float) -> Curve:
    """With garbage on top, which is collected now and then: a sawtooth."""
    period_s, height = math.exp(chance.uniform(math.log(10), math.log(most_s))), _height(chance)
    return lambda at_s: curve(at_s) + height * (at_s % period_s) / period_s


def _height(chance: random.Random) -> float:
    return chance.uniform(0.03, 0.3)


def _leak(chance: random.Random, shape: Callable[[float, float], float]) -> Curve:
    """From a base, after a warm-up, up to the limit and beyond. `shape`: from 0 to 1 in the time
    that is its second argument."""
    base, warm_s = chance.uniform(0.05, 0.6), chance.uniform(10, 1200)
    lasts_s = math.exp(chance.uniform(math.log(15 * MINUTE_S), math.log(10 * 3600)))
    begins_s = warm_s + chance.uniform(0, 3600)

    def curve(at_s: float) -> float:
        leaked = shape(max(at_s - begins_s, 0.0) / lasts_s, lasts_s)
        return base * min(at_s / warm_s, 1.0) + (1.0 - base) * leaked

    curve.began_s = begins_s  # type: ignore[attr-defined]
    return curve


def _steps(chance: random.Random) -> Curve:
    count = chance.randint(8, 60)
    return _leak(chance, lambda x, _: math.floor(x * count) / count)


def _accelerating(chance: random.Random) -> Curve:
    power = chance.uniform(1.3, 3.0)
    return _leak(chance, lambda x, _: x**power)


def _fills(chance: random.Random, most_min: float, shape: str) -> Curve:
    """It grows for so long, then stays."""
    base, top = chance.uniform(0.02, 0.3), chance.uniform(0.4, 0.94)
    lasts_s, begins_s = chance.uniform(3, most_min) * MINUTE_S, chance.uniform(0, 5400)

    def curve(at_s: float) -> float:
        x = max(at_s - begins_s, 0.0) / lasts_s
        grown = min(x, 1.0) if shape == "linear" else 1.0 - math.exp(-3.0 * x)
        return base + (top - base) * grown

    return curve


def _loader(chance: random.Random) -> Curve:
    """Each epoch it fills buffers, and frees them at the end."""
    epoch_s, fills = chance.uniform(60, 1500), chance.uniform(0.2, 1.0)
    base, height = chance.uniform(0.1, 0.4), chance.uniform(0.1, 0.5)
    return lambda at_s: base + height * min((at_s % epoch_s) / (fills * epoch_s), 1.0)


def _restarts(chance: random.Random) -> Curve:
    """A worker that leaks, and is replaced in time."""
    period_s, top = chance.uniform(10, 90) * MINUTE_S, chance.uniform(0.4, 0.9)
    base = chance.uniform(0.1, 0.3)
    return lambda at_s: base + (top - base) * (at_s % period_s) / period_s


def _wave(chance: random.Random) -> Curve:
    """Use follows traffic."""
    mean, height = chance.uniform(0.3, 0.6), chance.uniform(0.05, 0.3)
    period_s, shift = chance.uniform(0.3, 8) * 3600, chance.uniform(0, 2 * math.pi)
    return lambda at_s: mean + height * math.sin(2 * math.pi * at_s / period_s + shift)


def _flat(chance: random.Random) -> Curve:
    level = chance.uniform(0.1, 0.97)
    return lambda _: level


def _flat_low(chance: random.Random) -> Curve:
    level = chance.uniform(0.1, 0.6)
    return lambda _: level


def _fills_long(chance: random.Random) -> Curve:
    base, top = chance.uniform(0.02, 0.3), chance.uniform(0.4, 0.94)
    lasts_s = chance.uniform(30, 120) * MINUTE_S
    return lambda at_s: base + (top - base) * min(at_s / lasts_s, 1.0)


LEAKS: dict[str, Callable[[random.Random], Curve]] = {
    "leak, linear": lambda chance: _leak(chance, lambda x, _: x),
    "leak, a step each epoch": _steps,
    "leak, accelerating": _accelerating,
    "leak below collected garbage": lambda chance: _leak(chance, lambda x, _: x),
}
HARMLESS: dict[str, Callable[[random.Random], Curve]] = {
    "cache that fills in 3 to 20 min": lambda chance: _fills(chance, 20, "exponential"),
    "load or warm-up of 3 to 20 min": lambda chance: _fills(chance, 20, "linear"),
    "garbage, collected": lambda chance: _collected(chance, _flat_low(chance), 1500),
    "loader, each epoch": _loader,
    "allocator's noise": _flat,
    "worker replaced each 10 to 90 min": _restarts,
    "use that follows traffic": _wave,
}
HARD: dict[str, Callable[[random.Random], Curve]] = {
    "fills for 30 to 120 min, then stops": _fills_long,
}
"""While it grows, nothing distinguishes it from a leak. Reported apart."""


@dataclass(frozen=True)
class Drawn:
    """What was said of one load."""

    kind: str
    seed: int
    lasted_s: float | None
    """From the beginning of a leak to the limit."""
    ahead_s: float | None
    """How long before that the alarm began that was raised then; None: none was."""
    raised: int
    """How often an alarm began."""


def play(kind: str, seed: int) -> Drawn:
    chance = random.Random(f"{kind} {seed}")
    curve = {**LEAKS, **HARMLESS, **HARD}[kind](chance)
    began_s = getattr(curve, "began_s", None)
    if kind == "leak below collected garbage":
        curve = _collected(chance, curve, 600)
    curve = _noisy(chance, curve)
    trend, raised, since_s = MemoryTrend(), 0, None
    for step in range(int((AFTER_S if began_s is None else 24 * 3600) / EVERY_S)):
        at_s = step * EVERY_S
        held = curve(at_s)
        if held >= 1.0:
            ahead_s = None if since_s is None else at_s - since_s
            lasted_s = None if began_s is None else at_s - began_s
            return Drawn(kind, seed, lasted_s, ahead_s, raised)
        trend.add(at_s, int(held * LIMIT_BYTES), LIMIT_BYTES)
        if trend.filling is None:
            since_s = None
        elif since_s is None:
            since_s, raised = at_s, raised + 1
    return Drawn(kind, seed, None, None, raised)


def _leak_row(kind: str, rows: Sequence[Drawn]) -> dict[str, object]:
    ahead = sorted((one.ahead_s or 0.0) / MINUTE_S for one in rows)
    in_time = sum(one * MINUTE_S >= AHEAD_S for one in ahead)
    return {
        "load": kind,
        "draws": len(rows),
        "warned 5 min ahead": in_time,
        "minutes ahead, median": round(median(ahead), 1),
        "of the worst tenth": round(ahead[len(ahead) // 10], 1),
    }


def _harmless_row(kind: str, rows: Sequence[Drawn]) -> dict[str, object]:
    return {"load": kind, "draws": len(rows), "with a false alarm": sum(map(_alarmed, rows))}


def _alarmed(one: Drawn) -> bool:
    return one.raised > 0


def main(arguments: Sequence[str] | None = None) -> int:
    asked = options(
        __doc__, arguments, seeds=(len(SEEDS), "how many, of loads and of mixes; fewer: not saved")
    )
    whole = asked.seeds >= len(SEEDS)
    seeds, mixes = SEEDS[: asked.seeds], memory_mixes.SEEDS[: None if whole else asked.seeds]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        every = product((*LEAKS, *HARMLESS, *HARD), seeds)
        rows = list(pool.map(play, *zip(*every, strict=True), chunksize=10))
        outcomes = [one for found in pool.map(memory_mixes.played, mixes) for one in found]
    leaks = [one for one in rows if one.kind in LEAKS and one.lasted_s is not None]
    slow = [one for one in leaks if (one.lasted_s or 0.0) > SLOW_S]
    fast = [one for one in leaks if (one.lasted_s or 0.0) <= SLOW_S]
    harmless = [one for one in rows if one.kind in HARMLESS]
    tables = {
        "Leaks that take over 40 min to the limit": [
            _leak_row(kind, found) for kind, found in grouped(slow, lambda one: one.kind).items()
        ]
        + [_leak_row("all", slow)],
        "Faster leaks": [_leak_row("all", fast)] if fast else [],
        "Loads that reach no limit": [
            _harmless_row(kind, found)
            for kind, found in grouped(harmless, lambda one: one.kind).items()
        ]
        + [_harmless_row("all", harmless)],
        "Not distinguishable from a leak": [
            _harmless_row(kind, [one for one in rows if one.kind == kind]) for kind in HARD
        ],
    }
    warned = sum((one.ahead_s or 0.0) >= AHEAD_S for one in slow)
    headline = (
        f"{warned} of {len(slow)} drawn leaks that take over 40 min were warned of at least 5 min "
        f"ahead; {sum(map(_alarmed, harmless))} of {len(harmless)} harmless loads raised an alarm."
    )
    tables |= memory_mixes.tables(outcomes)
    finish(
        "memory",
        "none",
        seeds,
        rows,
        tables,
        [headline, memory_mixes.headline(outcomes)],
        whole=whole,
        mix_seeds=mixes,
        mixes=[asdict(one) for one in outcomes],
    )
    return 0

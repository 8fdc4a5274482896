"""Curves of known shape, cut off early: what the fit makes of the rest."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from dlsched.estimate.learning import MOST_POINTS, Learnt, Point, learnt, thinned

Curve = Callable[[float], float]


def power(step: float) -> float:
    """Reaches 0.70 at step 400, 0.80 at step 933; 0.9 in the limit."""
    return 0.9 - 0.8 * (1.0 + step / (400.0 / 3.0)) ** -1.0


def exponential(step: float) -> float:
    return 0.95 - 0.75 * math.exp(-step / 500.0)


def seen(curve: Curve, until: int, noise: float = 0.0, every: int = 50) -> list[Point]:
    chance = random.Random("seen")
    return [(step, chance.gauss(curve(step), noise), 1) for step in range(every, until + 1, every)]


def posterior(points: list[Point], tiers: tuple[float, float], **more: object) -> Learnt:
    return learnt(points, tiers, 3000.0, **more)  # type: ignore[arg-type,return-value]


def test_a_clean_power_law_is_followed_to_both_tiers() -> None:
    found = posterior(seen(power, 1000), (0.7, 0.8))
    assert found.deliver.steps == pytest.approx(400, rel=0.05)
    assert found.finish.steps == pytest.approx(933, rel=0.05)
    assert found.finish.chance > 0.95
    assert found.level == pytest.approx(power(3000), abs=0.02)


def test_an_exponential_is_followed_beyond_what_was_seen() -> None:
    first, second = 500 * math.log(0.75 / 0.25), 500 * math.log(0.75 / 0.05)
    found = posterior(seen(exponential, 800, noise=0.003), (0.7, 0.9))
    assert found.deliver.steps == pytest.approx(first, rel=0.05)
    assert found.finish.steps == pytest.approx(second, rel=0.25)


def test_a_metric_that_falls_is_followed_downwards() -> None:
    mirrored = [(step, 1.0 - value, count) for step, value, count in seen(power, 1000)]
    up, down = posterior(seen(power, 1000), (0.7, 0.8)), posterior(mirrored, (0.3, 0.2))
    assert down.deliver.steps == pytest.approx(up.deliver.steps, rel=0.02)
    assert down.level == pytest.approx(1.0 - up.level, abs=0.02)
    assert down.low_level <= down.level <= down.high_level


def test_a_tier_above_where_the_curve_levels_off_is_out_of_reach() -> None:
    found = posterior(seen(exponential, 2500, noise=0.002), (0.7, 0.97))
    assert found.deliver.chance > 0.99
    assert found.finish.chance < 0.02
    assert found.level == pytest.approx(0.95, abs=0.01)


def test_noise_widens_the_interval() -> None:
    clean = posterior(seen(power, 400, noise=0.001), (0.7, 0.8)).finish
    noisy = posterior(seen(power, 400, noise=0.03), (0.7, 0.8)).finish
    assert noisy.high_steps - noisy.low_steps > 2 * (clean.high_steps - clean.low_steps)


def test_a_rate_does_not_go_beyond_one() -> None:
    steep: list[Point] = [(100, 0.1, 1), (200, 0.2, 1), (300, 0.3, 1), (400, 0.4, 1)]
    assert posterior(steep, (0.6, 0.9)).high_level <= 1.0
    assert posterior([(s, 100 * v, c) for s, v, c in steep], (60.0, 90.0)).high_level > 50.0


def test_steps_told_are_evidence_where_evaluations_are_few() -> None:
    points = seen(power, 150, noise=0.005)
    alone = posterior(points, (0.7, 0.8)).finish
    told = posterior(points, (0.7, 0.8), reported_steps=1200.0).finish
    assert abs(math.log(told.steps / 933)) < abs(math.log(alone.steps / 933)) + 1e-9
    assert told.high_steps <= 3000


def test_a_tier_that_is_overdue_is_expected_to_be_as_late_again() -> None:
    def level(step: float) -> float:
        return 0.93 * (1.0 - math.exp(-step / 80.0))

    points = seen(level, 540, noise=0.008, every=20)
    thought = posterior(points, (0.83, 0.92))
    assert 300 < thought.finish.steps < 450, "by the curve it is there"
    late = posterior(points, (0.83, 0.92), after_steps=(0.0, 520.0))
    assert late.finish.steps > 520 + 0.9 * (520 - thought.finish.steps)
    assert late.finish.low_steps > 520
    assert late.deliver == thought.deliver, "the other one is reached"
    assert posterior(points, (0.83, 0.92), after_steps=(0.0, 100.0)) == thought, "not overdue"


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(10.0, 0.1, 1), (20.0, 0.2, 1)],
        [(10.0, 0.5, 1), (20.0, 0.4, 1), (30.0, 0.3, 1)],
        [(10.0, 0.5, 1), (10.0, 0.5, 1), (10.0, 0.5, 1)],
    ],
    ids=["none", "two", "away from the target", "one step"],
)
def test_what_tells_no_direction_gives_nothing(points: list[Point]) -> None:
    assert learnt(points, (0.7, 0.8), 1000.0) is None


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e100, -1e100])
def test_hostile_values_give_numbers_or_nothing(value: float) -> None:
    points: list[Point] = [(1, value, 1), (2, value, 1), (2**53, -value, 1), (2**53, 0.1, 1)]
    found = learnt(points, (0.7, 0.8), 1e6, reported_steps=1e6)
    if found is not None:
        numbers = (found.level, found.finish.steps, found.finish.high_steps, found.finish.chance)
        assert all(math.isfinite(number) for number in numbers)


def test_thinning_keeps_the_mean_and_the_latest() -> None:
    points: list[Point] = [(float(step), step * 0.01, 1) for step in range(1, 301)]
    kept: tuple[Point, ...] = ()
    for point in points:
        kept = thinned([*kept, point])
        assert len(kept) <= MOST_POINTS
    assert sum(count for _, _, count in kept) == 300
    mean = sum(value * count for _, value, count in kept) / 300
    assert mean == pytest.approx(sum(value for _, value, _ in points) / 300)
    assert kept[-16:] == tuple(points[-16:])
    assert [step for step, _, _ in kept] == sorted(step for step, _, _ in kept)


@pytest.mark.process
def test_numpy_is_not_imported_by_whoever_fits_no_curve() -> None:
    code = "import sys, dlsched.policies.adaptive.policy; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

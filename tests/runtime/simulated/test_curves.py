"""Learning curves: where they begin, what they do on the way, when they reach a value."""

from __future__ import annotations

import pytest

from dlsched.runtime.simulated.curves import Curve

STEPS = 400
CURVES = [
    Curve(0.1, 0.9, 50, "power", exponent=1.3),
    Curve(0.1, 0.9, 50, "exponential"),
    Curve(0.1, 0.9, 50, "plateau", at_step=60, for_steps=100),
    Curve(0.1, 0.9, 50, "drop", at_step=200),
    Curve(0.1, 0.9, 80, "restart", at_step=90),
    Curve(2.5, 0.2, 80, "exponential"),
]
NAMES = [f"{curve.family}-{'up' if curve.end > curve.start else 'down'}" for curve in CURVES]


@pytest.mark.parametrize("curve", CURVES, ids=NAMES)
def test_goes_from_start_towards_end(curve: Curve) -> None:
    assert curve.value(0) == pytest.approx(curve.start)
    assert curve.left(1e6) < 1e-3
    assert 0.0 < curve.left(STEPS) < 0.2


@pytest.mark.parametrize("curve", CURVES, ids=NAMES)
@pytest.mark.parametrize("part", [0.9, 0.5, 0.25, 0.05, 0.001])
def test_the_first_step_is_the_first_that_a_search_of_all_finds(curve: Curve, part: float) -> None:
    value = curve.end + (curve.start - curve.end) * part
    rises = curve.end > curve.start
    found = next(
        (
            step
            for step in range(STEPS + 1)
            if (curve.value(step) >= value if rises else curve.value(step) <= value)
        ),
        None,
    )
    assert curve.first_step(value, STEPS) == found


def test_beyond_the_end_is_never_reached() -> None:
    assert CURVES[0].first_step(0.91, 10**9) is None


def test_a_plateau_stands_still_and_goes_on() -> None:
    plateau = CURVES[2]
    assert plateau.value(60) == plateau.value(110) == plateau.value(160) < plateau.value(170)


def test_a_restart_throws_back() -> None:
    restart = CURVES[4]
    assert restart.value(90) < restart.value(89) < restart.value(179)


def test_a_drop_of_the_learning_rate_breaks_what_had_levelled_off() -> None:
    drop = CURVES[3]
    assert drop.value(200) - drop.value(170) < 0.05 < drop.value(230) - drop.value(200)

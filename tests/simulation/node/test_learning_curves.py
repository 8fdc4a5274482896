"""Learning curves: where they begin, what they do on the way, when they reach a value."""

from __future__ import annotations

import pytest

from dlsched.simulation.node.learning_curves import Curve, Measured

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


RAGGED = ((0, 0.1), (10, 0.5), (20, 0.3), (30, 0.3), (47, 0.8), (60, 0.7))


def test_a_measured_curve_is_linear_between_and_held_outside() -> None:
    curve = Measured(((10, 1.0), (20, 3.0)))
    assert [curve.value(step) for step in (0, 10, 12.5, 20, 99)] == [1.0, 1.0, 1.5, 3.0, 3.0]


@pytest.mark.parametrize("rises", [True, False])
@pytest.mark.parametrize("steps", [25, 60, 80])
def test_the_first_step_of_a_measured_curve_is_the_first_that_a_search_of_all_finds(
    rises: bool, steps: int
) -> None:
    values = RAGGED if rises else tuple((step, -value) for step, value in RAGGED)
    sign = 1 if rises else -1
    curve = Measured(values, rises)
    for goal in (0.05, 0.1, 0.3, 0.32, 0.5, 0.51, 0.79, 0.8, 0.81):
        found = next(
            (one for one in range(steps + 1) if sign * curve.value(one) >= goal - 1e-9), None
        )
        assert curve.first_step(sign * goal, steps) == found, goal


def test_no_goal_is_reached_before_anything_was_measured() -> None:
    assert Measured(((10, 0.5), (20, 0.6))).first_step(0.2, 100) == 10
    assert Measured(((10, 0.5), (20, 0.6))).first_step(0.2, 9) is None


def test_a_curve_that_never_changes_reaches_what_it_is_at_once() -> None:
    curve = Measured(((0, 0.5), (9, 0.5)))
    assert (curve.first_step(0.5, 9), curve.first_step(0.51, 9)) == (0, None)

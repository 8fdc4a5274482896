"""The account of a job's device time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.report.pacing import IDLE_S, LONGEST_S, WAITED_S, Budget

SHARES = st.floats(0.05, 0.95)


@given(SHARES, st.lists(st.floats(0.0, 5.0), min_size=1, max_size=50))
def test_resting_when_told_makes_every_stretch_cost_its_share(
    share: float, steps: list[float]
) -> None:
    budget, passed_s = Budget(), 0.0
    for step_s in steps:
        budget.spend(step_s, share)
        budget.gain(step_s, share, waited=True)
        rest_s = budget.rest_s(0.0, share)
        budget.gain(rest_s, share, waited=False)
        passed_s += step_s + rest_s
        assert budget.left_s == pytest.approx(0.0, abs=1e-9)
    assert sum(steps) == pytest.approx(share * passed_s, abs=1e-6)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_idle_time_is_made_up_for_within_a_window_and_no_more(share: float) -> None:
    budget = Budget()
    budget.gain(3600.0, share, waited=False)
    # With time passing at the same time, it is busy until as much is used as the window gives.
    assert budget.left_s / (1.0 - share) == pytest.approx(share * IDLE_S)


def test_time_waited_for_the_device_is_made_up_for_longer_and_is_not_lost_by_idling() -> None:
    budget = Budget()
    budget.gain(10.0, 0.5, waited=True)
    assert budget.left_s == 5.0
    budget.gain(10.0, 0.5, waited=False)
    assert budget.left_s == 5.0
    budget.gain(3600.0, 0.5, waited=True)
    assert budget.left_s == 0.25 * WAITED_S


def test_one_wrong_reading_does_not_put_a_job_to_sleep_for_hours() -> None:
    budget = Budget()
    budget.spend(1e9, 0.05)
    assert budget.rest_s(0.0, 0.05) == pytest.approx(LONGEST_S)
    budget.gain(-5.0, 0.05, waited=False)
    budget.spend(-5.0, 0.05)
    assert budget.rest_s(0.0, 0.05) == pytest.approx(LONGEST_S), "a clock that goes back"

from __future__ import annotations

import pytest

from dlsched.cluster.core.step_rate import CHANGES_MIN, StepRate


def test_a_rate_needs_time_and_changes_and_begins_again_with_a_lower_step() -> None:
    rate = StepRate()
    for at_s in range(0, 50, 10):
        rate.take(float(at_s), at_s)
    assert rate.per_s() is None, "not a minute"
    rate.take(60.0, 60)
    assert rate.per_s() == 1.0
    rare = StepRate()
    for index in range(CHANGES_MIN):
        rare.take(100.0 * index, index)
    assert rare.per_s() is None, "too few steps"
    rare.take(100.0 * CHANGES_MIN, CHANGES_MIN)
    assert rare.per_s() == 0.01
    rate.take(70.0, 3)
    assert rate.per_s() is None
    for at_s in range(80, 131, 10):
        rate.take(float(at_s), at_s)
    assert rate.per_s() == pytest.approx(127 / 60)

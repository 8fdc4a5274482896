from __future__ import annotations

import pytest

from dlsched.cluster.judging import CHANGES_MIN, MEASURED_S, StepRate


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


def test_a_job_that_stands_still_has_no_rate_and_one_that_reports_rarely_has() -> None:
    rate = StepRate()
    for at_s in range(0, 101, 10):
        rate.take(float(at_s), at_s)
    rate.take(100.0 + MEASURED_S, 100)
    assert rate.per_s() == 1.0
    rate.take(101.0 + MEASURED_S, 100)
    assert rate.per_s() is None
    rare = StepRate()
    for index in range(CHANGES_MIN + 1):
        rare.take(100.0 * index, index)
    rare.take(100.0 * CHANGES_MIN + 250.0, CHANGES_MIN)
    assert rare.per_s() == 0.01
    rare.take(100.0 * CHANGES_MIN + 301.0, CHANGES_MIN)
    assert rare.per_s() is None

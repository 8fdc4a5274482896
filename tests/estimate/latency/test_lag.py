"""How far lines lie behind CPU time."""

from __future__ import annotations

import pytest

from dlsched.estimate.latency.lag import Lag

WORK_CORE_S = 0.01


def after_cut(lag_s: float, before: Lag | None = None) -> Lag:
    """Used .4 cores, then .1, and tells of the requests of so long ago."""
    known = before or Lag(used_cores=0.4)
    requests = round((0.1 + lag_s * 0.3) / WORK_CORE_S)
    return known.after(0.1, 0.1, requests, WORK_CORE_S, noise=0.1)


@pytest.mark.parametrize("lag_s", [0.0, 0.4, 0.9])
def test_one_cut_tells_most_of_it(lag_s: float) -> None:
    assert after_cut(lag_s).seconds == pytest.approx(lag_s, abs=0.06)
    assert after_cut(lag_s).variance < 0.5 * Lag().variance


def test_not_even_very_many_requests_settle_it_at_once() -> None:
    known = Lag(used_cores=2.0).after(1.0, 1.0, 100_000, 1e-5, noise=0.01)
    assert known.told <= 100.0


def test_where_use_stays_it_tells_nothing() -> None:
    lag = Lag(0.3, 50.0, 0.1).after(0.1, 0.1, 17, WORK_CORE_S, noise=0.1)
    assert lag.seconds == 0.3
    assert lag.told < 50.0


def test_nor_does_a_first_look() -> None:
    lag = Lag().after(0.1, 0.1, 17, WORK_CORE_S, noise=0.1)
    assert (lag.seconds, lag.used_cores) == (Lag().seconds, 0.1)
    assert Lag().more_before(0.1) == 0.0


def test_it_stays_within_what_a_line_a_second_can_lie_behind() -> None:
    assert after_cut(5.0).seconds == 1.2
    assert after_cut(-0.3).seconds == 0.0


def test_what_is_known_well_is_hardly_moved() -> None:
    sure = Lag(0.2, 1e5, 0.4)
    assert after_cut(0.9, sure).seconds == pytest.approx(0.2, abs=0.05)

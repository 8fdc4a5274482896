"""When memory fills up, and when it only looks so."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from dlsched.estimate.memory import MemoryTrend, filling_text
from dlsched.model.state import Filling

LIMIT = 8 << 30
EVERY_S, HOUR_S, MINUTE_S = 5, 3600, 60

Curve = Callable[[float], float]
"""The part of the limit that is held after so many minutes."""


def alarms(
    curve: Curve, minutes: int, trend: MemoryTrend | None = None, since: int = 0
) -> list[tuple[float, float]]:
    """From which minute to which it was said to fill up; at the end still: infinite."""
    trend, found = trend or MemoryTrend(), []
    for at_s in range(since * MINUTE_S, minutes * MINUTE_S, EVERY_S):
        trend.add(at_s, int(curve(at_s / MINUTE_S) * LIMIT), LIMIT)
        if trend.filling is not None and (not found or found[-1][1] < math.inf):
            found.append((at_s / MINUTE_S, math.inf))
        elif trend.filling is None and found and found[-1][1] == math.inf:
            found[-1] = (found[-1][0], at_s / MINUTE_S)
    return found


def linear(full_min: float, base: float = 0.1) -> Curve:
    return lambda at: base + (1 - base) * at / full_min


def test_a_leak_is_warned_of_and_says_what_was_measured() -> None:
    trend = MemoryTrend()
    assert alarms(linear(60), 59, trend) == [(50.0, math.inf)]
    filling = trend.filling
    assert filling is not None
    assert filling.over_s == 30 * MINUTE_S
    assert filling.grew_bytes / LIMIT == pytest.approx(0.9 * 29 / 60, abs=0.01)
    assert filling.full_in_s == pytest.approx(2 * MINUTE_S, abs=MINUTE_S)
    assert filling.limit_bytes == LIMIT


@pytest.mark.parametrize(("full_min", "least_ahead"), [
    (40, 5), (60, 8), (120, 15), (480, 60), (24 * 60, 60),
])  # fmt: skip
def test_slower_leaks_are_warned_of_earlier(full_min: int, least_ahead: int) -> None:
    ((began, ended),) = alarms(linear(full_min), full_min)
    assert full_min - began >= least_ahead
    assert ended == math.inf


@pytest.mark.parametrize("curve", [
    lambda at: 0.1 + 0.9 * (at / 90) ** 2,
    lambda at: 0.1 + 0.9 * math.floor(at / 90 * 20) / 20,  # a step each epoch
    lambda at: linear(90)(at) * 0.85 + 0.15 * (at * 60 % 40) / 40,  # below garbage
], ids=["accelerating", "steps", "garbage"])  # fmt: skip
def test_other_leaks(curve: Curve) -> None:
    full = next(at for at in range(1, 100) if curve(at) >= 0.995)
    ((began, ended),) = alarms(curve, full)
    assert full - began >= 5
    assert ended == math.inf


@pytest.mark.parametrize("curve", [
    lambda at: 0.1 + 0.8 * min(at / 15, 1.0),  # a loader
    lambda at: 0.1 + 0.8 * min(max(at - 31, 0.0) / 16, 1.0),  # a warm-up, later
    lambda at: 0.1 + 0.84 * (1 - math.exp(-at / 5)),  # a cache
    lambda at: 0.4 + 0.5 * (at % 9) / 9,  # garbage
    lambda at: 0.97 + 0.001 * math.sin(at * 7),  # near the limit, and level
    lambda at: 0.9 - 0.1 * at / 200,  # it falls
    lambda _: 1.0,
], ids=["loader", "warm-up", "cache", "garbage", "level", "falling", "full"])  # fmt: skip
def test_no_alarm(curve: Curve) -> None:
    assert alarms(curve, 200) == []


def test_a_load_that_went_back_by_itself_from_there_is_not_said_to_fill_up_again() -> None:
    recycled = alarms(lambda at: 0.2 + 0.7 * (at % 80) / 80, 400)
    assert all(began < 80 for began, _ in recycled), recycled
    assert alarms(lambda at: 0.2 + 0.5 * (at % 80) / 80 if at < 160 else linear(80)(at - 160), 239)


def test_quick_growth_just_below_the_limit_counts_sooner() -> None:
    ((began, _),) = alarms(linear(20), 20)
    assert 18 <= began < 20


def test_an_alarm_ends_some_minutes_after_growth_has_stopped() -> None:
    ((began, ended),) = alarms(lambda at: linear(60)(min(at, 54)), 120)
    assert began == 50
    assert 60 <= ended <= 68


def test_an_alarm_ends_when_use_falls() -> None:
    ((_, ended),) = alarms(lambda at: linear(60)(at) if at < 54 else 0.3, 120)
    assert 54 < ended <= 56


def test_a_pause_in_the_growth_does_not_end_an_alarm() -> None:
    curve = linear(70)
    assert len(alarms(lambda at: curve(at - 5 if at > 63 else min(at, 58)), 70)) == 1


def test_another_limit_is_judged_anew() -> None:
    trend = MemoryTrend()
    assert alarms(linear(60), 55, trend)
    trend.add(56 * MINUTE_S, LIMIT, LIMIT * 4)
    assert trend.filling is None
    trend.add(57 * MINUTE_S, LIMIT, None)
    assert trend.filling is None


def test_without_a_limit_or_a_reading_nothing_is_said() -> None:
    trend = MemoryTrend()
    for at_s in range(0, 2 * HOUR_S, 60):
        trend.add(at_s, None if at_s % 120 else at_s << 20, None)
        trend.add(at_s, None, LIMIT)
        assert trend.filling is None


def test_readings_that_are_missing_for_long_are_no_growth() -> None:
    trend = MemoryTrend()
    assert alarms(linear(60), 20, trend) == []
    assert alarms(linear(60), 52, trend, since=45) == []
    for at_s in (10 * HOUR_S, 10**9, 5.0):
        trend.add(at_s, LIMIT // 2, LIMIT)
        assert trend.filling is None


@pytest.mark.parametrize(("full_in_s", "when"), [
    (1490.0, "25 min"), (29.0, "1 min"), (0.0, "1 min"), (3660.0, "1 h 1 min"),
])  # fmt: skip
def test_the_text(full_in_s: float, when: str) -> None:
    assert filling_text(Filling(1_290_000_000, 2400.0, LIMIT, full_in_s, 0.0)) == (
        "memory in use grew by 1.2 GiB in the last 40 min; the limit of 8 GiB is reached in about "
        f"{when} if the growth goes on"
    )

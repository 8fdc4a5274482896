"""Trends, means, and the order that comes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dlsched.api.stream_schema import CyclePoint, JobPoint
from dlsched.cli.top.curves import BARS, BUCKETS, Curves, bar
from dlsched.cli.top.table import ordered
from dlsched.model.state import JobState
from tests.cli.top.conftest import view_of
from tests.status_source import example_report, job, report_of


def point(now_s: float, ratios: Mapping[str, float | None]) -> CyclePoint:
    jobs = tuple(
        JobPoint(name, "running", None, 0, ratio, None, None, None)
        for name, ratio in ratios.items()
    )
    return CyclePoint(1, int(now_s), "", now_s, 4.0, 1.0, 1.0, None, jobs, None)


def of(*points: tuple[float, Mapping[str, float | None]]) -> Curves:
    """The curves of cycles at these times, with these ratios."""
    curves = Curves()
    for now_s, ratios in points:
        curves.add(point(now_s, ratios))
    return curves


def test_a_column_is_the_mean_of_15_s_and_silence_is_a_gap() -> None:
    seconds = [(600.0 + at, {"a": 0.8 if at < 15 else 1.2}) for at in range(30)]
    expected = [None] * (BUCKETS - 5) + [0.8, 1.2, None, None, 2.0]
    assert of(*seconds, (660.0, {"a": 2.0})).trends()["a"] == [
        one if one is None else pytest.approx(one) for one in expected
    ]


def test_the_trend_ends_after_5_minutes() -> None:
    assert of((600.0, {"a": 1.0}), (899.0, {"a": None})).trends()["a"][0] == 1.0
    assert of((600.0, {"a": 1.0}), (900.0, {"a": None})).trends() == {}


def test_the_mean_is_that_of_30_s() -> None:
    points = [(at, {"a": ratio, "b": None}) for at, ratio in ((0.0, 9.0), (10.0, 1.0), (31.0, 2.0))]
    assert of(*points).means() == {"a": 1.5}
    assert of(*points, (99.0, {"a": None, "b": None})).means() == {}


def test_jobs_that_are_gone_are_forgotten() -> None:
    assert of((0.0, {"a": 9.0}), (1.0, {"b": 1.0}), (2.0, {"a": 1.0})).means() == {"a": 1.0}


def test_a_cycle_sent_twice_counts_once() -> None:
    points = ((10.0, {"a": 2.0}), (10.0, {"a": 2.0}), (11.0, {"a": 1.0}))
    assert of(*points).means() == {"a": 1.5}


@pytest.mark.parametrize(
    ("ratio", "step"),
    [(0.0, 0), (0.5, 0), (0.6, 0), (0.9, 3), (1.0, 3), (1.001, 4), (1.5, 7), (99.0, 7)],
)
def test_up_to_the_target_a_bar_is_in_the_lower_half(ratio: float, step: int) -> None:
    assert bar(ratio) == BARS[step]


def test_the_worst_are_first_by_their_mean_and_equal_ones_stay() -> None:
    report = report_of(
        *map(job, ("met", "met-too", "late", "later", "band", "no-mean")),
        job("free", target=None),
        job("waits", state=JobState.WAITING),
        job("fails", state=JobState.FAILED),
    )
    means = {"met": 0.5, "met-too": 0.5, "late": 1.2, "later": 3.0, "band": 1.05}
    assert [one.name for one in ordered(view_of(report, means), "worst first")] == [
        *("fails", "later", "late", "waits", "band", "no-mean", "met", "met-too", "free")
    ]


@pytest.mark.parametrize(
    ("period_s", "age_s", "late"),
    [(1.0, 2.9, False), (1.0, 3.1, True), (10.0, 29.0, False), (10.0, 31.0, True)],
)
def test_news_is_late_after_three_periods(period_s: float, age_s: float, late: bool) -> None:
    view = replace(view_of(example_report()), heard_s=100.0, period_s=period_s)
    assert view.silence(100.0 + age_s) == (pytest.approx(age_s) if late else None)

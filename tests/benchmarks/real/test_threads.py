"""The bench of threads that fit: its table, and what it says of its figures."""

from __future__ import annotations

from benchmarks.real.threads import BUSY, Row, headlines, table


def rows(scene: str, fitted_s: float | None = None, **rates: tuple[float, ...]) -> list[Row]:
    return [
        Row("torch", scene, variant.strip("_"), turn, 1, rate, fitted_s)
        for variant, each in rates.items()
        for turn, rate in enumerate(each, 1)
    ]


def test_rates_are_compared_with_those_of_the_same_turn() -> None:
    found = rows("limit 1", fit=(10.0, 40.0, 20.0), _1=(10.0, 40.0, 20.0), _2=(9.0, 20.0, 19.0))
    assert table(found) == [
        {"library": "torch", "where": "limit 1", "best": 1, "fit": 1.0, "1": 1.0, "2": 0.9}
    ]


def test_a_figure_is_reached_where_all_cases_are_and_in_time() -> None:
    found = [
        *rows("limit 1", fit=(9.6,), _1=(10.0,), _2=(5.0,)),
        *rows(BUSY, fit=(9.0,), _1=(9.0,), _2=(10.0,)),
        *rows("limit 2, then 1", 31.0, follow=(10.0,), _1=(10.0,), _2=(5.0,)),
    ]
    start, busy, follow = headlines(table(found), found)
    assert "in 1 of 1 cases, least 0.96 (torch, limit 1): reached" in start
    assert "in 0 of 1 cases, least 0.90 (torch, beside two busy jobs): not reached" in busy
    assert follow.endswith("after 31 s at the latest (asked: 30 s): not reached")

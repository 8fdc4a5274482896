"""Outlooks in words, and which of their turns are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.forecast import (
    TURN_S,
    Forecast,
    ForecastKind,
    TargetState,
    TargetStates,
    givers,
    in_full,
    in_short,
    recalled,
    turned,
)

NOW_S = 1000.0
MET = Forecast(ForecastKind.MET, "latency")
CROWDED = Forecast(
    ForecastKind.CROWDED,
    "latency",
    needs_cores=2.45,
    lacks=(("vgg-2", 0.8), ("resnet", 0.4)),
    why="p95 81 ms of 50 ms with 1.25 cores",
)
IMPOSSIBLE = Forecast(ForecastKind.IMPOSSIBLE, "latency", best=0.064)
UNKNOWN = Forecast(ForecastKind.UNKNOWN, "latency")


def expected(in_s: float, low_s: float | None = None, high_s: float | None = None) -> Forecast:
    """A first tier, so many seconds ahead."""
    bounds = (None if one is None else NOW_S + one for one in (low_s, high_s))
    return Forecast(ForecastKind.EXPECTED, "deliver", NOW_S + in_s, *bounds)


@pytest.mark.parametrize(
    ("outlook", "words"),
    [
        (MET, "met"),
        (expected(250, 180, 362), "in 4 min (3-6)"),
        (expected(40, 35, 80), "in 40 s (35-80)"),
        (expected(40), "in 40 s"),
        (expected(1e30, 1e29, 1e31), "in over 1000 d"),
        (expected(240, 239, 241), "in 4 min"),
        (expected(5400, -10, 3 * 3600), "in 1.5 h (0.0-3.0)"),
        (expected(40 * 3600, 86_400, 20 * 86_400), "in 1.7 d (1.0-20)"),
        (expected(0.9, -5, 5), "any moment"),
        (expected(-9), "any moment"),
        (expected(-100, -150, 5), "any moment"),
        (expected(-11), "?"),
        (expected(-100, -150, -20), "?"),
        (Forecast(ForecastKind.EXPECTED, "latency"), "expected"),
        (Forecast(ForecastKind.EXPECTED, "end", NOW_S + 145), "ends in 145 s"),
        (Forecast(ForecastKind.MET, "end", NOW_S - 70), "ended"),
        (CROWDED, "lacks 1.2 cores"),
        (Forecast(ForecastKind.CROWDED, "latency", needs_cores=2.0), "crowded"),
        (IMPOSSIBLE, "at best 64 ms"),
        (Forecast(ForecastKind.IMPOSSIBLE, "finish", best=0.87123), "at best 0.8712"),
        (Forecast(ForecastKind.IMPOSSIBLE, "finish"), "impossible"),
        (replace(IMPOSSIBLE, kind=ForecastKind.UNLIKELY), "not expected"),
        (UNKNOWN, "?"),
    ],
)
def test_in_short(outlook: Forecast, words: str) -> None:
    assert in_short(outlook, NOW_S) == words


@pytest.mark.parametrize(
    ("outlook", "words"),
    [
        (Forecast(ForecastKind.MET, "deliver", NOW_S - 90), "met 1 min 30 s ago"),
        (MET, "met"),
        (expected(250, 180, 362), "expected in 4 min 10 s (80 %: 3 min to 6 min 2 s)"),
        (expected(250, -5, 362), "expected in 4 min 10 s (80 %: 0 s to 6 min 2 s)"),
        (expected(250), "expected in 4 min 10 s"),
        (expected(250, 249.9, 250.1), "expected in 4 min 10 s"),
        (expected(0.9, -9, 9), "expected any moment"),
        (
            replace(expected(-100, -150, -20), why="0.9 at step 1800"),
            "no forecast: the target is not met; it was expected at the latest 20 s ago",
        ),
        (Forecast(ForecastKind.EXPECTED, "latency"), "expected"),
        (
            CROWDED,
            (
                "cannot be met beside the other jobs, needs 2.45 cores, would be met with 0.8 "
                "cores from vgg-2, 0.4 cores from resnet: p95 81 ms of 50 ms with 1.25 cores"
            ),
        ),
        (Forecast(ForecastKind.CROWDED, "latency"), "cannot be met beside the other jobs"),
        (
            Forecast(
                ForecastKind.CROWDED, "deliver", NOW_S + 250, needs_cores=2.0, why="10 s late"
            ),
            (
                "cannot be met beside the other jobs; with the job's present share expected in "
                "4 min 10 s, needs 2 cores: 10 s late"
            ),
        ),
        (IMPOSSIBLE, "cannot be met on this node, at best 64 ms"),
        (
            replace(IMPOSSIBLE, why="64 ms at best, 50 ms asked", why_has_numbers=True),
            "cannot be met on this node: 64 ms at best, 50 ms asked",
        ),
        (
            replace(CROWDED, why="the target would be met if vgg-2 gave 0.8", why_has_numbers=True),
            "cannot be met beside the other jobs: the target would be met if vgg-2 gave 0.8",
        ),
        (  # whatever the names of jobs, which may be parts of the reason
            replace(CROWDED, lacks=(("s", 0.8),), why="it is 12 s late"),
            (
                "cannot be met beside the other jobs, needs 2.45 cores, would be met with 0.8 "
                "cores from s: it is 12 s late"
            ),
        ),
        (
            Forecast(ForecastKind.IMPOSSIBLE, "finish", why="it falls"),
            "cannot be met on this node: it falls",
        ),
        (Forecast(ForecastKind.UNLIKELY, "finish", why="it falls"), "not expected: it falls"),
        (UNKNOWN, "no forecast"),
    ],
)
def test_in_full(outlook: Forecast, words: str) -> None:
    assert in_full(outlook, NOW_S) == words


def test_of_many_who_would_have_to_give_three_are_named() -> None:
    lacks = tuple((name, 0.3) for name in ("a", "b", "c", "d", "e"))
    many = Forecast(ForecastKind.CROWDED, "latency", lacks=lacks)
    assert givers(many) == "1.5 cores more: from a, b, c, 2 others"
    assert in_full(many, NOW_S).endswith("0.3 cores from c, 2 others")
    four = Forecast(ForecastKind.CROWDED, "latency", lacks=lacks[:4])
    assert givers(four) == "1.2 cores more: from a, b, c, 1 other"
    assert givers(MET) == ""


# --------------------------------------------------------------------------- turns


def told(*said: tuple[float, Forecast], before: TargetStates = ()) -> list[tuple[float, str]]:
    """What is told, and when, where that is said at these times."""
    words = []
    for now_s, outlook in said:
        before, turns = turned((outlook,), before, now_s)
        words += [(now_s, word) for word, _ in turns]
    return words


def test_a_turn_is_told_once_when_it_has_stood_and_so_is_the_way_back() -> None:
    said = [(second, CROWDED) for second in range(200)]
    said += [(second, MET) for second in range(200, 300)]
    assert told(*said) == [(TURN_S, "crowded"), (200 + TURN_S, "possible")]


def test_what_flaps_is_not_told() -> None:
    flaps = [(second, CROWDED if second // 20 % 2 else MET) for second in range(600)]
    assert told(*flaps) == []


def test_from_crowded_to_impossible_is_a_turn_and_the_unknown_turns_nothing() -> None:
    said = [(0.0, CROWDED), (30.0, UNKNOWN), (60.0, CROWDED), (70.0, UNKNOWN)]
    said += [(80.0, IMPOSSIBLE), (140.0, IMPOSSIBLE), (150.0, UNKNOWN), (900.0, UNKNOWN)]
    assert told(*said) == [(60.0, "crowded"), (140.0, "impossible")]


def test_each_target_of_a_job_turns_by_itself() -> None:
    deliver, finish = expected(50), Forecast(ForecastKind.IMPOSSIBLE, "finish")
    before, _ = turned((deliver, finish), (), 0.0)
    _, turns = turned((deliver, finish), before, TURN_S)
    assert turns == (("impossible", finish),)


def test_what_was_recalled_was_told() -> None:
    before = recalled((CROWDED, UNKNOWN), 5.0)
    assert before == (TargetState("latency", "crowded", "crowded", 5.0),)
    assert told((10.0, CROWDED), (100.0, CROWDED), before=before) == []
    assert told((10.0, MET), (100.0, MET), before=before) == [(100.0, "possible")]

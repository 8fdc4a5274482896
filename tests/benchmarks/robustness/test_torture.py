"""What the table of deaths counts."""

from __future__ import annotations

from benchmarks.robustness.torture import by_act, by_action
from tests.torture.play import Run
from tests.torture.points import Phase, Point

START = Point("engine: start", "alpha", 1, has_inside=True)
RENAME = Point("put in place allotment", "alpha", 1)


def run(point: Point, phase: Phase, *wrong: str, reached: bool = True, act: str = "one") -> Run:
    return Run(act, "fair", point, phase, reached, wrong, 1.0)


def test_deaths_and_answers_are_counted_apart_and_losses_told_once():
    runs = [
        run(START, "before"),
        run(START, "inside", "alpha: no container"),
        run(START, "lost"),
        run(START, "slow", "alpha: no container"),
        run(RENAME, "before", reached=False),
        run(RENAME, "after", act="two"),
    ]
    start, rename, everything = by_action(runs)
    assert start == {
        "action": "engine: start",
        "points": 1,
        "deaths": 2,
        "answers lost or late": 2,
        "survived": 2,
        "not reached": 0,
        "lost": "alpha: no container",
    }
    assert (rename["points"], rename["deaths"], rename["not reached"]) == (2, 1, 1)
    assert rename["lost"] == "nothing"
    assert everything["action"] == "all"
    assert (everything["points"], everything["deaths"], everything["survived"]) == (3, 3, 3)
    assert [(row["act"], row["points"]) for row in by_act(runs)] == [("one", 2), ("two", 1)]

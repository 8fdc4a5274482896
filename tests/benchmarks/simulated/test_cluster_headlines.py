"""What the bench of the cluster's policies says of its rows."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.simulated.cluster import (
    ASKED,
    ENDS,
    LATER,
    PLACEBO,
    SPECON,
    STAYS,
    headlines,
)
from benchmarks.simulated.cluster_each_move import MoveScore
from benchmarks.simulated.cluster_each_move import headlines as each_move
from dlsched.simulation.cluster.scoring import ClusterScore, Contender

BEST = Contender("adaptive", ENDS).name
RANDOM = Contender(PLACEBO, ENDS).name


def scores(seed: int) -> list[ClusterScore]:
    """Rows that reach all that is asked."""
    row = ClusterScore("", "", seed, 100.0, 90.0, 200.0, 300.0, 3, 0, 0.4, 0.4, 1, 1.2, "job")
    return [
        one
        for scenario in ASKED
        for one in (
            replace(row, scenario=scenario, contender=BEST),
            replace(row, scenario=scenario, contender=f"moves alone: {BEST}"),
            replace(row, scenario=scenario, contender=f"moves alone: {RANDOM}", mean_ratio=1.1),
            replace(row, scenario=scenario, contender=f"{LATER}: {STAYS.name}", slower=7),
            replace(row, scenario=scenario, contender=SPECON, makespan_ratio=0.753),
        )
    ]


def test_each_headline_says_whether_its_figure_is_reached() -> None:
    found = scores(101) + scores(102)
    told = headlines(found)
    assert len(told) == 7 * len(ASKED)
    assert sum(line.endswith(": reached") for line in told) == 5 * len(ASKED)
    assert sum("makespan -24.7 % (its paper: mean -14.8 %" in line for line in told) == len(ASKED)
    assert sum("a second later: 7.0 jobs" in line for line in told) == len(ASKED)
    scenario = "cluster-50-equal"
    for contender, worse in (
        (BEST, {"makespan_ratio": 1.5}),
        (f"moves alone: {BEST}", {"mean_ratio": 1.02}),
        (f"moves alone: {BEST}", {"slower": 9}),
        (f"moves alone: {RANDOM}", {"mean_ratio": 0.9}),
    ):
        changed = [
            replace(one, **worse) if (one.scenario, one.contender) == (scenario, contender) else one
            for one in found
        ]
        lines = [line for line in headlines(changed) if "the aim" not in line]
        missed = [line for line in lines if line.endswith("not reached")]
        assert len(missed) == 1 and missed[0].startswith(scenario)


def test_a_bad_move_is_counted_and_told() -> None:
    good = MoveScore("cluster-50-equal", 101, "job", 0.8, 0.98)
    found = [good, good, good, replace(good, sum_ratio=1.02)]
    assert each_move(found) == [
        (
            "cluster-50-equal: of 4 moves 1 made the sum of completions more than 1 % worse "
            "(25%, asked 20%), 3 better; the mean of a move 0.9900, for the job itself 0.800: "
            "not reached"
        )
    ]

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
from dlsched.simulation.cluster.clairvoyant import ClairvoyantScore
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


def best() -> list[ClairvoyantScore]:
    """A clairvoyant that has half of the mean, and a fifth of the makespan."""
    return [ClairvoyantScore(one, "clairvoyant", 101, 1.0, 1.0, 0.5, 0.2) for one in ASKED]


def test_each_headline_says_whether_its_figure_is_reached() -> None:
    found = scores(101) + scores(102)
    told = headlines(found, best())
    assert len(told) == 7 * len(ASKED)
    assert sum(line.endswith(": reached") for line in told) == 4 * len(ASKED)
    assert sum("makespan -24.7 % (its paper: mean -14.8 %" in line for line in told) == len(ASKED)
    assert sum("a second later: 7.0 jobs" in line for line in told) == len(ASKED)
    # A mean of 0.4 is more than the way to 0.5, as that is no bound.
    way = "mean 120% (to 0.500, a strong schedule, not a proven bound), makespan 75% (to 0.200, "
    assert sum(way in line for line in told) == len(ASKED)
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
        missed = [line for line in headlines(changed, best()) if line.endswith("not reached")]
        assert len(missed) == 1 and missed[0].startswith(scenario)

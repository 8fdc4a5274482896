"""What the bench of the cluster's policies says of its rows."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.simulated.cluster import ASKED, ENDS, PLACEBO, headlines
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
        )
    ]


def test_each_headline_says_whether_its_figure_is_reached() -> None:
    found = scores(101) + scores(102)
    told = headlines(found)
    assert len(told) == 4 * len(ASKED)
    assert all(line.endswith(": reached") for line in told)
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
        missed = [line for line in headlines(changed) if line.endswith("not reached")]
        assert len(missed) == 1 and missed[0].startswith(scenario)

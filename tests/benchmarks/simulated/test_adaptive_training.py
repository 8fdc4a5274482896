"""The tables and figures of the simulated trainings, from rows written by hand."""

from __future__ import annotations

from benchmarks.simulated.adaptive_training import (
    BALANCED,
    cells_of,
    figures,
)
from dlsched.simulation.scoring import Row


def rows(policy: str, ratio: float, makespan_s: float, seed: int = 1) -> list[Row]:
    return [
        *(
            Row("fitted-burst", 10, policy, seed, f"{goal}_mean_s", 100 * ratio, 2 * ratio, ratio)
            for goal in ("tier1", "tier2", "jct")
        ),
        Row("fitted-burst", 10, policy, seed, "makespan_s", makespan_s, 1.1, makespan_s / 1000),
    ]


def test_a_figure_that_is_not_reached_is_told_as_such() -> None:
    cells = cells_of([*rows(BALANCED, 0.97, 950.0), *rows("tradl", 0.9, 900.0)])
    told = figures(cells)
    assert "fitted-burst, n = 10: mean of three of plain 0.970, at most 0.96: NOT reached" in told
    assert "fitted-burst, n = 10: tier 1 0.970, at most 1: reached" in told
    assert "fitted-burst, n = 10: makespan of the best tried 1.056, at most 1.02: NOT reached" in (
        told
    )

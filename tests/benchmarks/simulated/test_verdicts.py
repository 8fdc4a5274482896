"""What is counted of verdicts, and the draws that they are held against."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.simulated.verdicts import (
    FAMILIES,
    STEPS,
    drawn,
    figures,
    judged,
    rows_of,
)
from dlsched.model.spec import AccuracyTarget
from dlsched.simulation.node.workloads import TrainingLoad


@pytest.mark.parametrize("family", FAMILIES)
def test_some_targets_of_each_family_are_reached_and_some_never(family: str) -> None:
    reached = set()
    for seed in range(20):
        job = drawn(family, seed)
        assert job == drawn(family, seed)
        load, target = job.load, job.spec.target
        assert isinstance(load, TrainingLoad)
        assert isinstance(target, AccuracyTarget)
        reached.add(load.curve.first_step(target.finish, STEPS) is not None)
    assert reached == {True, False}


def test_a_curve_that_may_still_take_off_is_not_called_impossible() -> None:
    counts = sum((judged("sudden", "told", seed) for seed in range(1, 5)), Counter())
    rows = [row for row in rows_of(counts) if row.kind == "impossible"]
    assert all(row.held == row.said and row.late for row in rows)
    assert {"met", "unlikely"} <= {row.kind for row in rows_of(counts) if not row.late}


def test_one_false_verdict_in_fifty_is_a_figure_not_reached() -> None:
    key = ("drop", "told", True, "impossible")
    words = figures(rows_of(Counter({(*key, "said"): 50, (*key, "held"): 49})))
    assert words[0].endswith("held 49 of 50 times (0.980), at least 0.99: not reached")

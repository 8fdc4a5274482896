"""The simulated comparison: its traces, its rows, and what its table makes of them."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.simulated.simulated import PLAIN, SCENARIOS, Scenario, compare, table_of, trace_of
from dlsched.simulation.scoring import Row
from dlsched.simulation.trace import Recipe


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_seed_draws_the_trace_and_nothing_else_does(scenario: Scenario):
    assert trace_of(scenario, 10, 1) == trace_of(scenario, 10, 1)
    assert trace_of(scenario, 10, 1).jobs != trace_of(scenario, 10, 2).jobs
    assert len(trace_of(scenario, 20, 1).jobs) == 20
    assert scenario.policies[0] == PLAIN


def test_every_policy_has_its_numbers_beside_plain_docker():
    recipe = Recipe(kind="training", schedule="burst", duration_s=120.0, cores=4.0)
    scenario = Scenario("training-small", recipe, (PLAIN, "fair", "tradl"))
    found = compare(scenario, 3, seed=1)
    for policy in scenario.policies:
        metrics = {row.metric: row for row in found if row.policy == policy}
        assert {"tier1_mean_s", "jct_mean_s", "makespan_s", "updates", "settling_steps"} <= set(
            metrics
        )
        assert metrics["makespan_s"].of_optimum is not None
        assert metrics["makespan_s"].of_optimum >= 1 - 1e-9
    assert any(row.metric == "tier1_best_s" and row.policy == "tradl" for row in found)
    assert compare(scenario, 3, seed=1) == found


def test_a_seed_in_which_a_job_did_not_end_leaves_no_makespan_to_tell():
    mean = Row("training-x", 3, "tradl", 1, "jct_mean_s", 10.0, 1.0, 1.0)
    reached = dataclasses.replace(mean, metric="jct_reached_ratio", value=1.0)
    makespan = dataclasses.replace(mean, metric="makespan_s", of_plain=0.9)
    (whole,) = table_of([mean, reached, makespan], "training")
    assert (whole["makespan of plain"], whole["jobs that ended"]) == (0.9, 1.0)
    other = [
        dataclasses.replace(mean, seed=2),
        dataclasses.replace(reached, seed=2, value=0.5),
    ]
    (part,) = table_of([mean, reached, makespan, *other], "training")
    assert "makespan of plain" not in part
    assert part["jobs that ended"] == 0.75


def test_the_table_takes_means_over_seeds_and_the_worst_of_them():
    plain = Row("inference-x", 10, PLAIN, 1, "satisfied_mean_ratio", 0.0, 0.0, None)
    met = dataclasses.replace(plain, metric="met_mean_ratio", value=0.5)
    rows = [
        plain,
        met,
        dataclasses.replace(plain, policy="dqoes", value=0.8, of_optimum=0.9),
        dataclasses.replace(plain, policy="dqoes", seed=2, value=0.6, of_optimum=0.7),
        dataclasses.replace(met, policy="dqoes"),
        dataclasses.replace(plain, scenario="training-y"),
    ]
    first, second = table_of(rows, "inference")
    assert "within 10 %, of plain" not in first
    assert second["policy"] == "dqoes"
    assert second["within 10 %, jobs"] == pytest.approx(7.0)
    assert second["within 10 %, of optimum"] == pytest.approx(0.8)
    assert second["within 10 %, worst seed"] == pytest.approx(6.0)

"""What holds of whole runs, over days drawn at random and for every policy that is shipped."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.controller import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.policies.registry import load
from dlsched.simulation import run as simulator
from dlsched.simulation.node import SimulatedRuntime
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.run import compare
from dlsched.simulation.scoring import RunResult, rows
from dlsched.simulation.trace import Recipe, generate
from tests.properties import examples

EVERY_POLICY = (
    "none",
    "fair",
    "dqoes",
    "dqoes-published",
    "dqoes-published?reading=own",
    "flowcon",
    "tradl",
    "tradl?weights=closest",
)


def run(trace: Trace, policy: str) -> RunResult:
    return simulator.simulate(trace, policy, 1)


recipes = st.builds(
    Recipe,
    jobs=st.integers(1, 6),
    duration_s=st.sampled_from([40.0, 120.0]),
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["training", "inference", "mixed"]),
    schedule=st.sampled_from(["burst", "fixed", "random"]),
    cores=st.sampled_from([1.0, 4.0, 8.0]),
    demand=st.sampled_from([0.3, 0.7, 1.4, 3.0]),
    impossible_ratio=st.sampled_from([0.0, 0.5]),
    gap_s=st.just(7.0),
    stay_s=st.sampled_from([None, 25.0]),
)


@pytest.mark.parametrize("policy", EVERY_POLICY)
@settings(max_examples=examples(6))
@given(recipe=recipes)
def test_limits_hold_and_no_core_idles_that_somebody_may_use(policy: str, recipe: Recipe) -> None:
    trace, loaded = generate(recipe), load(policy)
    seen: list[SimulatedRuntime] = []

    class Watched(SimulatedRuntime):
        def __init__(self, trace: Trace, seed: int = 0) -> None:
            super().__init__(trace, seed)
            seen.append(self)

    def look(report: CycleReport) -> None:
        assert not report.alarms
        running = report.snapshot.running
        for job in running:
            ceiling = job.actual.cpu_cores
            assert ceiling is None or ceiling >= job.spec.bounds.floor_cores - 1e-9
        if loaded.reserves:
            ceilings = [job.actual.cpu_cores or math.inf for job in running]
            assert math.fsum(ceilings) <= recipe.cores + 1e-6
        world = seen[0].world
        wanted = [
            process.load.wants_cores(process.quota_cores) for process in world._running.values()
        ]
        assert world.used_cores == pytest.approx(min(recipe.cores, math.fsum(wanted)))

    with patch.object(simulator, "SimulatedRuntime", Watched):
        simulator.simulate(trace, NamedPolicy(policy, loaded), 1, publish=look)


@settings(max_examples=examples(10))
@given(recipe=recipes)
def test_no_policy_beats_a_bound(recipe: Recipe) -> None:
    trace = generate(recipe)
    for row in rows(trace, compare(trace, EVERY_POLICY, [1])):
        if row.of_optimum is not None and row.metric.endswith("_s"):
            assert row.of_optimum >= 1.0 - 1e-9, row
        elif row.of_optimum is not None:
            assert row.of_optimum <= 1.0 + 1e-9, row


@pytest.mark.parametrize("policy", EVERY_POLICY)
@settings(max_examples=examples(5))
@given(seed=st.integers(0, 10_000), light=st.floats(0.01, 1.0))
def test_every_job_with_weight_finishes(policy: str, seed: int, light: float) -> None:
    trace = generate(Recipe(jobs=4, duration_s=60.0, kind="training", cores=4.0, seed=seed))
    first, *others = trace.jobs
    lighter = replace(first, spec=replace(first.spec, weight=light))
    trace = replace(trace, jobs=(lighter, *others), duration_s=20_000.0)
    assert run(trace, policy).metrics()["jct_reached_ratio"] == 1.0


@settings(max_examples=examples(5))
@given(recipe=recipes, policy=st.sampled_from(EVERY_POLICY), chance=st.randoms())
def test_over_any_day_a_run_repeats_whatever_the_order_of_jobs(
    recipe: Recipe, policy: str, chance: random.Random
) -> None:
    trace = generate(recipe)
    once = run(trace, policy)
    assert run(trace, policy) == once
    shuffled = list(trace.jobs)
    chance.shuffle(shuffled)
    other = run(replace(trace, jobs=tuple(shuffled)), policy)
    assert sorted(other.jobs, key=lambda job: job.name) == list(once.jobs)

"""Traces to order: as many, as loaded and as scheduled as asked for."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import pytest

from dlsched.simulation.node.service import quantile_factor
from dlsched.simulation.node.workloads import SimulatedJob
from dlsched.simulation.trace import Recipe, generate, render_trace

SERVICES = Recipe(kind="inference", jobs=40, duration_s=120.0, schedule="burst", seed=3)


def jobs_of(recipe: Recipe) -> dict[str, SimulatedJob]:
    return {job.name: job for job in generate(recipe).jobs}


def test_impossible_targets_are_below_what_all_threads_reach() -> None:
    trace = generate(Recipe(kind="inference", jobs=200, impossible_ratio=0.25))
    impossible = 0
    for job in trace.jobs:
        best_s = job.load.overhead_s + job.load.work_core_s / job.load.threads
        impossible += job.spec.target.seconds < 0.9 * best_s
    assert impossible == pytest.approx(50, abs=20)


@pytest.mark.parametrize("seed", range(20))
def test_trainings_reach_both_tiers_before_their_end_and_need_the_demand(seed: int) -> None:
    trace = generate(Recipe(kind="training", jobs=20, cores=8.0, demand=0.9, seed=seed))
    works = []
    for job in trace.jobs:
        load, target = job.load, job.spec.target
        first = load.curve.first_step(target.deliver, load.steps)
        second = load.curve.first_step(target.finish, load.steps)
        assert first is not None and second is not None and 0 < first < second <= load.steps
        works.append(load.steps * load.work_core_s)
    assert math.fsum(works) == pytest.approx(0.9 * 8.0 * 3600.0, rel=0.01)


def test_old_recipes_make_the_traces_that_they_always_made() -> None:
    """Results quote seeds: no new wish may draw from the dice of the old ones. What each wish does
    was checked once, of these very traces."""
    whole = hashlib.sha256()
    for recipe in (
        Recipe(20, seed=7, impossible_ratio=0.2, demand=1.2),
        Recipe(20, seed=7, kind="inference", schedule="burst", impossible_ratio=0.2, demand=1.2),
        Recipe(20, seed=7, kind="training", schedule="fixed", impossible_ratio=0.2, demand=1.2),
        Recipe(20, seed=7, stay_s=100.0, families=("plateau", "restart")),
        replace(SERVICES, noise=1.0, quantile=0.95, change_ratio=2.0, churn_ratio=0.5),
        replace(SERVICES, stale_ratio=0.2, lying_ratio=0.15, schedule="random", stay_s=30.0),
    ):
        whole.update(render_trace(generate(recipe)).encode())
    assert whole.hexdigest() == "d68a09a87e42f22e6388a80113db01b248436315eb046e7e5ebf11a4c49a570f"


@pytest.mark.parametrize(("noise", "quantile"), [(0.2, None), (1.0, 0.95)])
def test_services_need_the_demand_at_their_quantile(noise: float, quantile: float | None) -> None:
    made = jobs_of(replace(SERVICES, noise=noise, quantile=quantile, demand=0.9, cores=8.0))
    need = 0.0
    for job in made.values():
        assert (job.load.noise, job.spec.target.quantile) == (noise, quantile)
        work_core_s = job.load.work_core_s * quantile_factor(noise, quantile)
        cores = work_core_s / (job.spec.target.seconds - job.load.overhead_s)
        assert cores <= job.load.threads * 1.001
        need += cores
    assert need == pytest.approx(0.9 * 8.0, rel=0.01)

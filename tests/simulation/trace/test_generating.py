"""Traces to order: as many, as loaded and as scheduled as asked for."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import replace

import pytest

from dlsched.simulation.node.curves import Curve
from dlsched.simulation.node.service import quantile_factor
from dlsched.simulation.node.workloads import ServiceLoad, SimulatedJob, TrainingLoad
from dlsched.simulation.trace import Recipe, generate, render_trace

SERVICES = Recipe(kind="inference", jobs=40, duration_s=120.0, schedule="burst", seed=3)


def jobs_of(recipe: Recipe) -> dict[str, SimulatedJob]:
    return {job.name: job for job in generate(recipe).jobs}


@pytest.mark.parametrize("jobs", [1, 2, 10, 40])
def test_so_many_jobs_with_names_in_order(jobs: int) -> None:
    names = [job.name for job in generate(Recipe(jobs=jobs)).jobs]
    assert len(set(names)) == jobs
    assert names == sorted(names)


def test_schedules() -> None:
    burst = generate(Recipe(schedule="burst"))
    fixed = generate(Recipe(schedule="fixed", gap_s=30.0, jobs=4, kind="training"))
    spread = generate(Recipe(schedule="random", duration_s=1000.0, jobs=200))
    assert {job.arrives_s for job in burst.jobs} == {0.0}
    assert [job.arrives_s for job in fixed.jobs] == [0.0, 30.0, 60.0, 90.0]
    arrivals = [job.arrives_s for job in spread.jobs]
    assert 0 <= min(arrivals) < 20 and 380 < max(arrivals) <= 400


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


def test_a_mixed_trace_has_half_of_each() -> None:
    loads = [type(job.load) for job in generate(Recipe(jobs=10)).jobs]
    assert loads.count(ServiceLoad) == loads.count(TrainingLoad) == 5


def test_services_leave_after_their_stay_and_trainings_do_not() -> None:
    for job in generate(Recipe(jobs=10, stay_s=100.0)).jobs:
        serves = isinstance(job.load, ServiceLoad)
        assert job.leaves_s == (pytest.approx(job.arrives_s + 100.0) if serves else None)


def test_old_recipes_make_the_traces_that_they_always_made() -> None:
    """Results quote seeds: no new wish may draw from the dice of the old ones."""
    whole = hashlib.sha256()
    for recipe in (
        Recipe(20, seed=7, impossible_ratio=0.2, demand=1.2),
        Recipe(20, seed=7, kind="inference", schedule="burst", impossible_ratio=0.2, demand=1.2),
        Recipe(20, seed=7, kind="training", schedule="fixed", impossible_ratio=0.2, demand=1.2),
    ):
        whole.update(render_trace(generate(recipe)).encode())
    assert whole.hexdigest() == "d43cb4b7289a78a69e85bf29d9da776c41812c9244e0a568d5bdce2824ee0387"


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


def test_the_load_of_every_service_changes_midway_within_the_ratio_and_nothing_else() -> None:
    before, after = jobs_of(SERVICES), jobs_of(replace(SERVICES, change_ratio=2.0))
    factors = []
    for name, job in after.items():
        (shift,) = job.shifts
        assert (shift.at_s, shift.arrivals) == (60.0, 1.0)
        factors.append(shift.work)
        assert replace(job, shifts=()) == before[name]
    assert 0.5 <= min(factors) < 0.75 and 1.5 < max(factors) <= 2.0


def test_churn_lets_half_of_them_come_late_and_half_leave_early() -> None:
    made = jobs_of(replace(SERVICES, churn_ratio=0.5)).values()
    late = [job for job in made if job.arrives_s > 0.0]
    early = [job for job in made if job.leaves_s is not None]
    assert len(late) == len(early) == 10
    assert not {job.name for job in late} & {job.name for job in early}
    assert all(24.0 <= job.arrives_s <= 96.0 for job in late)
    assert all(job.leaves_s is not None and 24.0 <= job.leaves_s <= 96.0 for job in early)


def test_churn_leaves_every_stay_a_stay() -> None:
    made = jobs_of(replace(SERVICES, churn_ratio=1.0, schedule="random", stay_s=30.0)).values()
    stays_s = [job.leaves_s - job.arrives_s for job in made if job.leaves_s is not None]
    assert len(stays_s) == 40 and min(stays_s) > 0.0 and max(stays_s) == pytest.approx(30.0)


def test_so_many_fall_silent_again_and_again_and_speak_in_between() -> None:
    made = jobs_of(replace(SERVICES, stale_ratio=0.2)).values()
    silent = [job.faults for job in made if job.faults]
    assert len(silent) == 8
    for faults in silent:
        assert len(faults) >= 2 and {one.kind for one in faults} == {"silent"}
        for one, following in itertools.pairwise(faults):
            assert one.for_s is not None and 10.0 <= one.for_s <= 30.0
            assert 10.0 <= following.at_s - one.at_s - one.for_s <= 30.001


def test_liars_lie_from_the_start_and_so_that_it_shows() -> None:
    made = jobs_of(replace(SERVICES, lying_ratio=0.15)).values()
    lies = [fault for job in made for fault in job.faults]
    assert len(lies) == 6 and {(one.kind, one.at_s, one.for_s) for one in lies} == {
        ("lying", 0.0, None)
    }
    assert all(0.5 <= one.factor <= 0.813 or 1.23 <= one.factor <= 2.0 for one in lies)


def test_trainings_learn_in_the_families_asked_for_alone() -> None:
    made = jobs_of(Recipe(kind="training", jobs=30, families=("plateau", "restart")))
    curves = [job.load.curve for job in made.values() if isinstance(job.load, TrainingLoad)]
    assert {one.family for one in curves if isinstance(one, Curve)} == {"plateau", "restart"}

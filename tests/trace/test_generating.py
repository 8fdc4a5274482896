"""Traces to order: as many, as loaded and as scheduled as asked for."""

from __future__ import annotations

import math

import pytest

from dlsched.model import AccuracyTarget, LatencyTarget
from dlsched.runtime.simulated.workloads import ServiceLoad, TrainingLoad
from dlsched.trace import Recipe, generate


@pytest.mark.parametrize("jobs", [1, 2, 10, 40])
def test_so_many_jobs_with_names_in_order(jobs: int) -> None:
    names = [job.name for job in generate(Recipe(jobs=jobs)).jobs]
    assert len(set(names)) == jobs
    assert names == sorted(names)


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    assert generate(Recipe(seed=7)) == generate(Recipe(seed=7)) != generate(Recipe(seed=8))


def test_schedules() -> None:
    burst = generate(Recipe(schedule="burst"))
    fixed = generate(Recipe(schedule="fixed", gap_s=30.0, jobs=4, kind="training"))
    spread = generate(Recipe(schedule="random", duration_s=1000.0, jobs=200))
    assert {job.arrives_s for job in burst.jobs} == {0.0}
    assert [job.arrives_s for job in fixed.jobs] == [0.0, 30.0, 60.0, 90.0]
    arrivals = [job.arrives_s for job in spread.jobs]
    assert 0 <= min(arrivals) < 20 and 380 < max(arrivals) <= 400


def test_services_need_the_demand_asked_for() -> None:
    trace = generate(Recipe(kind="inference", jobs=30, cores=8.0, demand=1.4))
    need = 0.0
    for job in trace.jobs:
        assert isinstance(job.load, ServiceLoad) and isinstance(job.spec.target, LatencyTarget)
        cores = job.load.work_core_s / (job.spec.target.seconds - job.load.overhead_s)
        assert cores <= job.load.threads * 1.001
        need += cores
    assert need == pytest.approx(1.4 * 8.0, rel=0.01)


def test_impossible_targets_are_below_what_all_threads_reach() -> None:
    trace = generate(Recipe(kind="inference", jobs=200, impossible_ratio=0.25))
    impossible = 0
    for job in trace.jobs:
        assert isinstance(job.load, ServiceLoad) and isinstance(job.spec.target, LatencyTarget)
        best_s = job.load.overhead_s + job.load.work_core_s / job.load.threads
        impossible += job.spec.target.seconds < 0.9 * best_s
    assert impossible == pytest.approx(50, abs=20)


@pytest.mark.parametrize("seed", range(20))
def test_trainings_reach_both_tiers_before_their_end_and_need_the_demand(seed: int) -> None:
    trace = generate(Recipe(kind="training", jobs=20, cores=8.0, demand=0.9, seed=seed))
    works = []
    for job in trace.jobs:
        load, target = job.load, job.spec.target
        assert isinstance(load, TrainingLoad) and isinstance(target, AccuracyTarget)
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

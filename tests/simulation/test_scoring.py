"""What is told of runs: numbers, plain Docker beside them, and the clairvoyant's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.spec import LatencyTarget
from dlsched.simulation.node.workloads import ServiceLoad
from dlsched.simulation.run import compare
from dlsched.simulation.scoring import JobResult, RunResult, beside_plain, rows
from dlsched.simulation.trace import Recipe, generate, parse_trace
from tests.simulation.test_run import LONE, run

GOAL = ("completion",)


def test_no_queue_that_a_target_allows_beats_the_bound() -> None:
    trace = generate(Recipe(jobs=2, kind="inference", schedule="burst", duration_s=10, cores=1))
    load = ServiceLoad(0.01, arrivals_per_s=90.0)  # for both, 1.8 of one core
    jobs = tuple(
        replace(job, load=load, spec=replace(job.spec, target=LatencyTarget(8.0)), start_up_s=0.0)
        for job in trace.jobs
    )
    trace = replace(trace, jobs=jobs)
    found = {row.metric: row for row in rows(trace, compare(trace, [], [1]))}
    assert found["met_mean_ratio"].value == pytest.approx(1.0)
    assert found["met_mean_ratio"].of_optimum == pytest.approx(1.0)


def test_a_goal_not_reached_counts_with_the_time_that_it_had() -> None:
    trace = replace(parse_trace(LONE % "1s", "lone"), duration_s=20.0)
    result = run(trace)
    assert result.jobs[0].completion_s is None
    metrics = result.metrics()
    assert metrics["jct_mean_s"] == 20.0 - 3.5
    assert metrics["jct_reached_ratio"] == 0.0
    assert metrics["tier1_reached_ratio"] == 1.0
    assert "makespan_s" not in metrics


def test_best_and_worst_are_the_jobs_that_gained_and_lost_most_beside_plain_docker() -> None:
    def result(policy: str, *times: float | None) -> RunResult:
        jobs = tuple(
            JobResult(f"job-{index}", "training", 0.0, 100.0, completion_s=time_s, goals=GOAL)
            for index, time_s in enumerate(times)
        )
        return RunResult(policy, 1, 100.0, 100, 0, jobs)

    found = beside_plain(result("own", 10.0, 30.0, 60.0, None), result("none", 20, 20, 50, None))
    assert found == [
        ("jct_best_s", 10.0, None, 0.5),
        ("jct_worst_s", 30.0, None, 1.5),
        ("jct_worse_jobs", 2.0, None, None),
    ]


def test_what_is_told_of_times() -> None:
    jobs = tuple(
        JobResult(f"job-{index}", "training", 0.0, 100.0, tier1_s=time_s, goals=("tier1",))
        for index, time_s in enumerate([*range(1, 20), None])
    )
    metrics = RunResult("own", 1, 100.0, 100, 0, jobs).metrics()
    assert metrics["tier1_mean_s"] == pytest.approx((190 + 100) / 20)
    assert metrics["tier1_median_s"] == 10.5
    assert metrics["tier1_p95_s"] == 19
    assert metrics["tier1_reached_ratio"] == 0.95

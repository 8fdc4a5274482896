"""Whole runs: the controller itself over simulated time, and what is reported of them: numbers,
plain Docker beside them, and the clairvoyant's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import Snapshot
from dlsched.policies.none import NonePolicy
from dlsched.policies.protocol import NoParameters
from dlsched.simulation.node.workloads import ServiceLoad, Trace
from dlsched.simulation.run import compare, simulate
from dlsched.simulation.scoring import JobResult, RunResult, beside_plain, rows
from dlsched.simulation.trace import Recipe, generate, parse_trace

EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"

LONE = """
trace: 1
node: {cores: 4}
duration: 10m
cycle: %s
jobs:
  - name: lone
    at: 3500ms
    start_up: 250ms
    target: {metric: accuracy, deliver: 0.5, finish: 0.9}
    training:
      {steps: 1000, work: 0.1, threads: 2, evaluate_every: 10,
       curve: {family: exponential, start: 0, end: 1, scale: 100}}
"""


def example(name: str) -> Trace:
    return parse_trace((EXAMPLES / f"{name}.yaml").read_text(), name)


def run(trace: Trace, policy: str = "none", seed: int = 1) -> RunResult:
    return simulate(trace, policy, seed)


@pytest.mark.parametrize("cycle", ["100ms", "1s", "7s", "1m"])
def test_times_are_exact_whatever_the_cycle(cycle: str) -> None:
    (lone,) = run(parse_trace(LONE % cycle, "lone")).jobs
    # 20 steps a second, from the moment that its container runs.
    assert lone.completion_s == pytest.approx(0.25 + 50.0)
    assert lone.tier1_s == pytest.approx(0.25 + 70 / 20)
    assert lone.tier2_s == pytest.approx(0.25 + 231 / 20)


SHOP = """
trace: 1
node: {cores: 2}
duration: 1m
jobs:
  - name: shop
    target: {latency: 60ms, quantile: p95}
    service: {work: 0.01, noise: 0.5, arrivals: 25}
"""
HOG = """
  - name: hog
    background: true
    training:
      {steps: 100000000, work: 0.1, threads: 4, evaluate_every: 100,
       curve: {family: exponential, start: 0, end: 1, scale: 100}}
"""


@pytest.mark.parametrize("policy", ["adaptive", "dqoes", "fair", "flowcon", "tradl"])
def test_a_background_job_uses_all_cpu_that_a_service_leaves(policy: str) -> None:
    trace, reports = parse_trace(SHOP + HOG, "beside"), list[CycleReport]()
    beside = simulate(trace, policy, 1, publish=reports.append)
    hog, shop = reports[-1].snapshot.jobs
    assert (hog.name, hog.actual.cpu_cores, hog.cpu_shares) == ("hog", None, 2)
    used_core_s = hog.attained_core_s + shop.attained_core_s
    assert used_core_s > 0.97 * trace.node.cores * trace.duration_s
    (alone,) = run(parse_trace(SHOP, "alone"), policy).jobs
    assert alone.met_ratio is not None and alone.met_ratio > 0
    assert beside.jobs[1].met_ratio == pytest.approx(alone.met_ratio, abs=0.05)


class Broken(NonePolicy):
    """Fails always."""

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        raise RuntimeError("on purpose")


def test_a_policy_that_fails_shows_in_the_result() -> None:
    result = simulate(
        parse_trace(LONE % "1s", "lone"), NamedPolicy("broken", Broken(NoParameters()))
    )
    assert any(
        "all limits are given back" in alarm and "on purpose" in alarm for alarm in result.alarms
    )
    assert result.jobs[0].completion_s == pytest.approx(50.25)


@pytest.mark.parametrize(
    ("name", "policies"),
    [("three-jobs", ["fair"]), ("a-bad-day", ["fair"]), ("training-5", ["flowcon", "tradl"])],
)
def test_the_examples_give_their_golden_outputs(name: str, policies: list[str]) -> None:
    """`dlsched simulate examples/traces/NAME.yaml -p fair -o json` wrote these files.

    The third one: `-p flowcon --compare tradl`.
    """
    trace = example(name)
    golden = json.loads((EXAMPLES / f"{name}.golden.json").read_text())
    found = [asdict(row) for row in rows(trace, compare(trace, policies, [1]))]
    assert len(found) == len(golden["rows"]) > 10
    for one, wanted in zip(found, golden["rows"], strict=True):
        # A library's last digit may differ from one machine to the next.
        assert one == {
            key: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
            for key, value in wanted.items()
        }


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

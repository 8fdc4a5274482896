"""How runs are judged: enough requests and both readings of satisfied; tiers, work, settling, and
beside plain Docker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.judge import (
    Course,
    Measured,
    by_job,
    courses,
    foreign_cores,
    judge,
    judged,
    requests_needed,
    rows,
    satisfied,
    tiers_s,
    updates,
    works,
)
from dlsched.estimate.sketch import from_latencies
from dlsched.model.actions import Outcome, Resize
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision
from dlsched.model.facts import Sample
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot
from dlsched.simulation.scoring import training_optima


@pytest.mark.parametrize(("variation", "needed"), [(0.0, 11), (0.2, 11), (0.5, 68), (1.0, 271)])
def test_noisier_latencies_need_more_requests(variation, needed):
    assert requests_needed(variation) == needed


@pytest.mark.parametrize(
    ("mean_s", "band", "slo"),
    [(0.88, 0, 1), (0.91, 1, 1), (1.0, 1, 1), (1.09, 1, 0), (1.12, 0, 0)],
)
def test_both_readings_of_satisfied(mean_s, band, slo):
    series = [(1.0, from_latencies([mean_s] * 20))]
    assert satisfied([judge("a", 1.0, series, 0.0)]) == (band, slo)


def test_what_arrived_before_the_judged_window_does_not_count():
    series = [(1.0, from_latencies([9.0])), (61.0, from_latencies([1.0] * 12))]
    judged = judge("a", 1.0, series, 60.0)
    assert (judged.requests, judged.enough, judged.band) == (12, True, True)


def test_a_silent_job_is_not_satisfied():
    judged = judge("a", 1.0, [], 0.0)
    assert (judged.ratio, judged.band, judged.slo, judged.enough) == (None, False, False, False)


Point = tuple[float, float]

TARGET = AccuracyTarget("accuracy", 0.5, 0.9)
NODE = NodeView(capacity_cores=2.0, cores=2.0, memory_bytes=1 << 30)


def samples(metric: str, values: Sequence[Point]) -> tuple[Sample, ...]:
    return tuple(
        Sample(at_s, index, ((metric, value), ("loss", 9.0)))
        for index, (at_s, value) in enumerate(values)
    )


def view(
    name: str, values: Sequence[Point] = (), *, core_s: float = 0.0, over: bool = False
) -> JobView:
    return JobView(
        spec=JobSpec(name, ContainerSpec("image"), target=TARGET),
        state=JobState.FINISHED if over else JobState.RUNNING,
        progress=Progress(samples=samples("accuracy", values)),
        attained_core_s=core_s,
    )


def report(
    now_s: float,
    *jobs: JobView,
    limits: dict[str, float | None] | None = None,
    wakes: tuple[str, ...] = (),
    outcomes: tuple[Outcome, ...] = (),
    alarms: tuple[str, ...] = (),
) -> CycleReport:
    decided = {name: Limits(cores) for name, cores in (limits or {}).items()}
    return CycleReport(
        snapshot=Snapshot(int(now_s), now_s, NODE, jobs, wakes=wakes),
        policy="none",
        decision=None if limits is None else Decision(decided),
        limits=decided,
        outcomes=outcomes,
        alarms=alarms,
    )


# ---------------------------------------------------------------------- tiers


def test_a_tier_is_reached_by_the_third_evaluation_in_a_row():
    points = [(1.0, 0.6), (2.0, 0.4), (3.0, 0.5), (4.0, 0.6), (5.0, 0.95), (6.0, 0.95)]
    assert tiers_s(samples("accuracy", points), TARGET, 3) == (5.0, None)
    assert tiers_s(samples("accuracy", [*points, (7.0, 0.9)]), TARGET, 3) == (5.0, 7.0)


def test_a_metric_whose_finish_is_below_its_deliver_is_better_when_lower():
    target = AccuracyTarget("elbo", 100.0, 80.0)
    points = [(float(t), 110.0 - 5.0 * t) for t in range(9)]
    assert tiers_s(samples("elbo", points), target, 3) == (4.0, 8.0)
    assert tiers_s(samples("elbo", points[:4]), target, 3) == (None, None)


# ---------------------------------------------------------------------- courses


def test_evaluations_are_gathered_over_cycles_once_each():
    first, second = (11.0, 0.5), (12.0, 0.6)
    found = courses(
        [report(11.0, view("a", [first])), report(12.0, view("a", [first, second]))],
        {"a": 10.0},
        in_a_row=2,
    )["a"]
    assert found.tiers_s == (12.0, None)
    assert found.ended_s is None


def test_work_is_read_between_two_cycles_in_proportion():
    course = Course("a", 0.0, ((1.0, 0.5), (2.0, 2.5)), None, (None, None))
    assert course.work_core_s(0.2) == 0.5
    assert course.work_core_s(1.25) == pytest.approx(1.0)
    assert course.work_core_s(9.0) == 2.5
    assert course.work_core_s(None) is None


def test_times_count_from_the_drop_of_the_file():
    values = [(12.0, 0.5), (13.0, 0.6), (14.0, 0.95), (15.0, 0.95), (16.0, 0.95)]
    reports = [
        report(12.0, view("a", values[:1]), view("b"), alarms=("engine: gone",)),
        report(17.0, view("a", values, over=True), view("b"), alarms=("engine: gone",)),
    ]
    one = judged("none", 1, reports, {"a": 10.0, "b": 11.0}, 3, {"foreign_cores": 0.1})
    first, second = one.run.jobs
    assert (first.tier1_s, first.tier2_s, first.completion_s) == (4.0, 6.0, 7.0)
    assert (second.arrived_s, second.tier1_s, second.completion_s) == (1.0, None, None)
    assert one.run.times("tier1") == {"a": 4.0, "b": 6.0}, "not reached: as long as it was watched"
    assert "makespan_s" not in one.run.metrics(), "a job that never ended has no makespan"
    told = {"foreign_cores": 0.1, "work_core_s": 0.0, "alarms": 1}
    assert one.extra == told


# ---------------------------------------------------------------------- steps and updates


def test_only_updates_that_were_made_count():
    resize = Resize("a", "id", Limits(1.0), Limits(2.0), 1024, "")
    outcomes = tuple(Outcome(resize, status) for status in ("done", "begun", "failed", "withheld"))
    assert updates([report(1.0, view("a"), outcomes=outcomes)]) == 2


# ---------------------------------------------------------------------- beside plain Docker


def run_of(policy: str, seed: int, tier1: dict[str, float], end: float = 20.0) -> Measured:
    """Two-core jobs that take what plain arithmetic gives; all arrive at 100 s."""
    names = sorted(tier1)
    reports = [
        report(100.0, *(view(name) for name in names)),
        *(
            report(
                100.0 + t,
                *(
                    view(
                        name,
                        [(100.0 + tier1[name] + step - 2, 0.5) for step in range(3)],
                        core_s=float(t) * len(names) ** -1 * 2,
                        over=t >= end,
                    )
                    for name in names
                ),
            )
            for t in range(1, int(end) + 1)
        ),
    ]
    return judged(policy, seed, reports, dict.fromkeys(names, 100.0), 3, {})


def test_rows_stand_beside_plain_docker_of_the_same_seed():
    runs = [
        run_of("none", 1, {"a": 10.0, "b": 10.0}),
        run_of("tradl", 1, {"a": 5.0, "b": 12.0}),
        run_of("none", 2, {"a": 8.0, "b": 8.0}),
        run_of("tradl", 2, {"a": 8.0, "b": 4.0}),
        run_of("tradl", 3, {"a": 1.0, "b": 1.0}),  # no plain run under this seed
    ]
    found = {(row.policy, row.seed, row.metric): row for row in rows("two", 2.0, runs)}
    assert found["tradl", 1, "tier1_mean_s"].of_plain == pytest.approx(8.5 / 10)
    assert found["tradl", 2, "tier1_mean_s"].of_plain == pytest.approx(6.0 / 8)
    assert found["tradl", 1, "tier1_worse_jobs"].value == 1
    assert found["tradl", 1, "tier1_best_s"].of_plain == pytest.approx(0.5)
    assert found["tradl", 1, "tier1_worst_s"].of_plain == pytest.approx(1.2)
    assert {row.seed for row in found.values()} == {1, 2}
    assert all(row.n == 2 and row.scenario == "two" for row in found.values())


def test_the_best_job_is_best_in_the_mean_over_seeds():
    runs = [
        run_of("none", 1, {"a": 10.0, "b": 10.0}),
        run_of("tradl", 1, {"a": 4.0, "b": 6.0}),
        run_of("none", 2, {"a": 10.0, "b": 10.0}),
        run_of("tradl", 2, {"a": 12.0, "b": 8.0}),
    ]
    assert by_job(runs, "tradl", "tier1") == {"a": pytest.approx(0.8), "b": pytest.approx(0.7)}


def test_the_optimum_takes_the_least_work_seen_of_each_job():
    quick = run_of("tradl", 1, {"a": 10.0, "b": 10.0}, end=20.0)
    slow = run_of("none", 1, {"a": 10.0, "b": 10.0}, end=30.0)
    best = training_optima(works([slow, quick], 2.0).values(), 2.0)
    # Each job computes 20 core-seconds in the quick run: 40 on two cores.
    assert best["makespan_s"] == pytest.approx(20.0)
    # Tier 1 takes each 10 core-seconds, one after the other on both cores: 5 and 10 s.
    assert best["tier1_mean_s"] == pytest.approx(7.5)
    assert "tier2_mean_s" not in best, "nobody reached it"


def test_what_others_use_is_a_mean_over_the_time_and_not_over_cycles() -> None:
    def at(now_s: float, cores: float | None) -> CycleReport:
        node = replace(NODE, foreign_cores=cores)
        return CycleReport(Snapshot(cycle=1, now_s=now_s, node=node), policy="none")

    seen = [at(0.0, 9.0), at(1.0, 0.1), at(1.01, 9.0), at(2.01, 0.1), at(3.01, None)]
    assert foreign_cores(seen) == pytest.approx((0.1 + 0.09 + 0.1) / 2.01)
    assert math.isnan(foreign_cores(seen[:1]))

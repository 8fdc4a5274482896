"""The mixed node: what its traces are, what trainings use of what is left, and who is missed."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.simulated import mixed
from benchmarks.simulated.mixed import (
    POLICIES,
    Left,
    Row,
    table_of,
)
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Usage
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.state import JobState, JobView, NodeView, Snapshot
from dlsched.simulation.run import simulate
from tests.doubles import job_spec

ROW = Row("light", 10, "none", 1, 5, 4, 1, 1, 0.8, 0.2, 0.99, 100.0, 300.0, 0)


def view(name: str, used: float | None, target: object) -> JobView:
    spec = job_spec(name, target=target)
    return JobView(spec=spec, state=JobState.RUNNING, usage=Usage(cpu_cores=used))


def report(now_s: float, *jobs: JobView, foreign: float | None = None) -> CycleReport:
    node = NodeView(4.0, 4.0, 1 << 30, foreign_cores=foreign)
    return CycleReport(Snapshot(1, now_s, node, jobs), policy="x")


SERVES = view("serves", 1.0, LatencyTarget(0.05))
LEARNS = view("learns", 1.5, AccuracyTarget("accuracy", 0.8, 0.9))


def test_what_is_left_is_capacity_less_what_others_use() -> None:
    left = Left({"learns": 8.0})
    for now_s in (0.0, 1.0, 3.0):
        left.add(report(now_s, SERVES, LEARNS))
    assert left.left_core_s == pytest.approx(3.0 * 3)
    assert left.used_core_s == pytest.approx(1.5 * 3)
    assert left.ratio == pytest.approx(0.5)


def test_a_training_is_asked_for_no_more_than_it_can_use() -> None:
    left = Left({"learns": 1.5})
    for now_s in (0.0, 1.0):
        left.add(report(now_s, SERVES, LEARNS))
    assert left.ratio == 1.0


def test_a_training_that_just_came_is_not_held_to_a_whole_cycle() -> None:
    left = Left({"learns": 8.0})
    left.add(report(0.0, SERVES))
    left.add(report(1.0, SERVES, LEARNS))
    assert (left.left_core_s, left.ratio) == (0.0, 1.0)


def test_the_table_adds_up_who_was_missed_and_tells_the_worst_seed() -> None:
    other = dataclasses.replace(ROW, seed=2, missed_beside=0, training_use_ratio=0.5)
    ours = [
        dataclasses.replace(one, policy=POLICIES[-1], tier1_mean_s=one.tier1_mean_s / 2)
        for one in (ROW, other)
    ]
    plain, adaptive = table_of([*ours, other, ROW])
    assert (plain["policy"], adaptive["policy"]) == ("none", POLICIES[-1])
    assert adaptive["services not slower, of all"] == 0.8
    assert adaptive["missed beside trainings, met alone"] == 1
    assert adaptive["worst seed's training use of what is left"] == 0.5
    assert adaptive["tier 1 of plain"] == 0.5


@pytest.mark.parametrize(
    ("name", "n", "seed"), [("adaptive", 20, 1), ("adaptive?mode=band", 40, 7)]
)
def test_services_that_begin_together_on_a_full_node_are_not_called_hopeless(
    name: str, n: int, seed: int
) -> None:
    # Each got less than it could use, and was taken to be unable to use more.
    trace = dataclasses.replace(mixed.trace_of(mixed.SCENARIOS[1], n, seed), duration_s=60.0)
    reports = list[CycleReport]()
    run = simulate(trace, name, seed, publish=reports.append)
    assert not run.alarms
    verdicts = [told.kind for report in reports for one in report.outlooks.values() for told in one]
    assert verdicts
    assert "impossible" not in verdicts

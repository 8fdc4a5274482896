"""The tables and figures of the simulated trainings, from rows written by hand."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.simulated.adaptive_training import (
    BALANCED,
    FITTED,
    OTHERS,
    SCENARIOS,
    Told,
    cells_of,
    figures,
    table_of,
    trace_of,
)
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.state import NodeView, Snapshot
from dlsched.simulation.scoring import JobResult, Row, RunResult


def rows(policy: str, ratio: float, makespan_s: float, seed: int = 1) -> list[Row]:
    return [
        *(
            Row("fitted-burst", 10, policy, seed, f"{goal}_mean_s", 100 * ratio, 2 * ratio, ratio)
            for goal in ("tier1", "tier2", "jct")
        ),
        Row("fitted-burst", 10, policy, seed, "makespan_s", makespan_s, 1.1, makespan_s / 1000),
        Row("fitted-burst", 10, policy, seed, "inside", 7, None, None),
        Row("fitted-burst", 10, policy, seed, "told", 10, None, None),
    ]


def test_a_line_has_the_mean_of_the_three_and_how_often_the_interval_held() -> None:
    cells = cells_of([*rows(BALANCED, 0.8, 900.0), *rows(BALANCED, 0.6, 900.0, seed=2)])
    (line,) = table_of(cells)
    assert line["mean of three of plain"] == pytest.approx(0.7)
    assert line["tier 1 of optimum"] == pytest.approx(1.4)
    assert line["in the 80 % interval"] == pytest.approx(0.7)


def test_a_figure_that_is_not_reached_is_told_as_such() -> None:
    cells = cells_of([*rows(BALANCED, 0.97, 950.0), *rows("tradl", 0.9, 900.0)])
    told = figures(cells)
    assert "fitted-burst, n = 10: mean of three of plain 0.970, at most 0.96: NOT reached" in told
    assert "fitted-burst, n = 10: tier 1 0.970, at most 1: reached" in told
    assert "fitted-burst, n = 10: makespan of the best tried 1.056, at most 1.02: NOT reached" in (
        told
    )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_a_scenario_has_its_own_families_and_the_same_trace_for_a_seed(scenario) -> None:  # type: ignore[no-untyped-def]
    trace = trace_of(scenario, 10, 1)
    families = {job.load.curve.family for job in trace.jobs}  # type: ignore[union-attr]
    assert families <= set(FITTED if scenario.families == "fitted" else OTHERS)
    assert trace == trace_of(scenario, 10, 1) != trace_of(scenario, 10, 2)


def expected(at_s: float, low_s: float, high_s: float) -> Forecast:
    return Forecast(ForecastKind.EXPECTED, "deliver", at_s, low_s, high_s)


def told_at(now_s: float, *outlooks: Forecast) -> CycleReport:
    snapshot = Snapshot(1, now_s, NodeView(1.0, 1.0, 1))
    return CycleReport(snapshot, "adaptive", Decision(), outlooks={"a": outlooks})


def test_intervals_are_held_against_the_truth_once_a_minute() -> None:
    told = Told()
    told.add(told_at(0.0, expected(100.0, 90.0, 110.0)))
    told.add(told_at(5.0, expected(100.0, 0.0, 1.0)))
    told.add(told_at(60.0, expected(120.0, 116.0, 125.0)))
    told.add(told_at(120.0, Forecast(ForecastKind.MET, "deliver", 105.0)))
    job = JobResult("a", "training", 5.0, 1000.0, tier1_s=100.0)
    run = RunResult("adaptive", 1, 1000.0, 1, 0, (job,))
    assert told.inside(run) == (1, 2)
    missed = dataclasses.replace(run, jobs=(dataclasses.replace(job, tier1_s=None),))
    assert told.inside(missed) == (0, 0)

"""Real trainings: their job set, and what table and headlines make of judged runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.judge import rows
from benchmarks.publish import results
from benchmarks.real import training
from benchmarks.real.training import headlines
from benchmarks.real.training_set import MODELS, SCHEDULES, Schedule, command, safe
from dlsched.config.job import parse_spec
from dlsched.model.spec import AccuracyTarget
from tests.benchmarks.test_judge import run_of

RUNS = [
    run_of("none", 1, {"a": 10.0, "b": 10.0}),
    run_of("tradl", 1, {"a": 4.0, "b": 15.0}, end=25.0),
    run_of("none", 2, {"a": 10.0, "b": 10.0}),
    run_of("tradl", 2, {"a": 6.0, "b": 9.0}, end=21.0),
]


def test_a_headline_has_best_mean_worst_makespan_and_what_it_cost() -> None:
    (line,) = headlines("two", rows("two", 2.0, RUNS), RUNS)
    assert line == (
        "two, tradl, time to tier 1 beside plain Docker: best job a -50.0% (published -48.20%), "
        "mean -15.0%, worst job b +20.0%, 1 of 2 jobs worse; makespan 1.150 of plain, CPU time "
        "1.150 of it"
    )


def test_a_run_that_others_disturbed_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    voided: list[object] = []
    monkeypatch.setattr(training, "run", lambda *_: "kept")
    monkeypatch.setattr(training, "void", voided.append)
    others_cores = iter((0.19, 0.21))
    monkeypatch.setattr(
        training,
        "measured",
        lambda _: replace(RUNS[0], extra={"foreign_cores": next(others_cores)}),
    )
    training.undisturbed(SCHEDULES[0], "none", "none", 1, {})
    assert voided == []
    with pytest.raises(RuntimeError, match=r"others used 0\.21 cores"):
        training.undisturbed(SCHEDULES[0], "none", "none", 1, {})
    assert voided == ["kept"]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_the_job_files_are_valid_and_differ_by_seed(schedule: Schedule):
    for job in schedule.jobs:
        spec = parse_spec(schedule.text(job, 1), "job.yaml")
        one = job.model
        assert spec.target == AccuracyTarget(one.metric, one.deliver, one.finish)
        assert spec.name == job.name
        assert spec.container.command == tuple(command(one, 1))
        assert schedule.text(job, 1) != schedule.text(job, 2)


def test_targets_are_what_the_saved_calibration_gives_by_its_rule():
    saved = results.load("training-calibration")
    assert saved is not None
    assert {row["model"] for row in saved["rows"]} == set(MODELS)
    for row in saved["rows"]:
        model = MODELS[row["model"]]
        lower = model.finish < model.deliver
        assert model.deliver == safe(row["held from 1/3 on"], lower=lower)
        assert model.finish == safe(row["held from 3/4 on"], lower=lower)

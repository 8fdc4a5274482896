"""Real trainings: their job set, and what table and headlines make of judged runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.judge import Measured, rows
from benchmarks.publish import results
from benchmarks.real import training
from benchmarks.real.training import ADAPTIVE, ORACLE, gain_headlines, headlines
from benchmarks.real.training_set import MODELS, SCHEDULES, Schedule, command, safe
from dlsched.config.job import parse_spec
from dlsched.model.spec import AccuracyTarget
from dlsched.simulation.scoring import PLAIN, JobResult, RunResult
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


def gained(policy: str, seed: int, **tier1_s: float) -> Measured:
    jobs = tuple(
        JobResult(name, "training", 0.0, 900.0, tier1_s=at_s, goals=("tier1",))
        for name, at_s in tier1_s.items()
    )
    return Measured(RunResult(policy, seed, 100.0, 100, 0, jobs), {})


def test_the_median_seed_counts_and_none_without_plain_docker() -> None:
    runs = [
        *(gained(PLAIN, seed, a=10.0, b=30.0) for seed in (1, 2, 3)),
        gained(ADAPTIVE, 1, a=13.0, b=10.0),
        gained(ADAPTIVE, 2, a=13.0, b=20.0),
        gained(ADAPTIVE, 3, a=99.0, b=90.0),
        gained(ADAPTIVE, 4, a=1.0, b=1.0),
        gained(ORACLE, 1, a=12.0, b=20.0),
    ]
    ours, oracle = gain_headlines("s", runs)
    assert "17.5% less than under plain Docker (by seed: 42.5%, 17.5%, -372.5%)" in ours
    assert ours.endswith("worst job a at 1.30 of plain Docker's time, 1 of 2 jobs worse")
    assert oracle.startswith("s: under oracle the mean time to tier 1 is 20.0% less")

"""Real trainings: their job set, what table and headlines make of judged runs, and a run on a real
engine: files dropped at their times, the journal kept and judged.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.judge import rows
from benchmarks.publish import results
from benchmarks.real import training, training_set
from benchmarks.real.training import headlines
from benchmarks.real.training_set import (
    MODELS,
    SCHEDULES,
    Model,
    Schedule,
    TrainingJob,
    command,
    safe,
)
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


# Two threads' worth of CPU, and an accuracy that grows with the steps.
STAND_IN = """
  - python
  - -c
  - |
    import os
    import time
    from dlsched.report import Progress
    child = os.fork()
    step = 0
    progress = Progress()
    while step < 12:
        begin = time.process_time()
        while time.process_time() - begin < 0.25:
            pass
        step += 1
        if child:
            progress.step(step=step, accuracy=step / 12)
            time.sleep(0.75)
    if child:
        os.waitpid(child, 0)
    raise SystemExit(EXIT if child else 0)
"""


def text(job: TrainingJob, seed: int, exit_code: int = 0) -> str:
    return (
        f"name: {job.name}\nimage: dlsched-examples/base:3.11\n"
        f"command: {STAND_IN.replace('EXIT', str(exit_code))}"
        f"network: none\nstop: {{grace: 1s}}\nenvironment: {{SEED: '{seed}'}}\n"
        "target: {metric: accuracy, deliver: 0.3, finish: 0.6}\n"
    )


STAND_INS = Model("stand-in", 12, 1, 1, 1.0, 1, "accuracy", 0.3, 0.6)
PAIR = Schedule(
    "pair",
    (TrainingJob("early", STAND_INS, 0.0), TrainingJob("late", STAND_INS, 3.0)),
    240.0,
    text,
)


@pytest.fixture
def home(docker_host: str, base_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Everything that a comparison writes goes into a folder of the test's own."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    monkeypatch.setattr(training, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(training_set, "SCHEDULES", (PAIR,))
    # The host may do other work meanwhile.
    monkeypatch.setattr(training, "FOREIGN_MOST_CORES", math.inf)
    return tmp_path


@pytest.mark.e2e
@pytest.mark.engine
@pytest.mark.timeout(900)
def test_runs_are_kept_judged_and_not_run_again(home: Path, capsys: pytest.CaptureFixture[str]):
    policies = {"none": "none", "tradl-often": "tradl?interval_s=2"}
    training.run_missing(policies, [1])
    kept = training.load(training.folder_of("pair", "tradl-often", 1))
    assert kept is not None
    assert 0 < kept.daemon_core_ratio < 1
    run = training.measured(kept).run
    late = {job.name: job for job in run.jobs}["late"]
    assert late.arrived_s >= 2.0, "asked for after 3 s; it is looked once a second"
    assert late.tier1_s is not None and late.tier2_s is not None
    # A slow host may let the agent see the last evaluations and the exit in one cycle.
    assert 0 < late.tier1_s <= late.tier2_s <= (late.completion_s or 0) <= PAIR.deadline_s
    assert run.updates > 0

    (line,) = training.judge_kept(policies, [1])
    assert "best job" in line and "worst job" in line and "makespan" in line
    saved = json.loads((home / "results" / "training-real.json").read_text())
    metrics = {row["metric"] for row in saved["rows"] if row["policy"] == "tradl-often"}
    assert {"tier1_best_s", "tier1_mean_s", "jct_best_s", "jct_mean_s", "makespan_s"} <= metrics

    assert "of 2" in capsys.readouterr().out, "both were run"
    training.run_missing(policies, [1])
    assert "==" not in capsys.readouterr().out, "neither is run again"


@pytest.mark.e2e
@pytest.mark.engine
def test_a_job_that_fails_ends_the_run_and_leaves_nothing(home: Path):
    alone = Schedule("alone", PAIR.jobs[:1], 240.0, lambda job, seed: text(job, seed, 3))
    with pytest.raises(RuntimeError, match="early failed"):
        training.run(alone, "none", "none", 1, {})
    assert training.load(training.folder_of("alone", "none", 1)) is None

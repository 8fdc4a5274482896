"""Real trainings: their job set, and what table and headlines make of judged runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks.judge.trainings import rows
from benchmarks.publish import results
from benchmarks.real import training
from benchmarks.real.training import headlines, table_rows
from benchmarks.real.training_set import (
    GAP_S,
    MODELS,
    POLICIES,
    PUBLISHED_GAP_S,
    SCHEDULES,
    Schedule,
    command,
    safe,
)
from dlsched.config.job import parse_spec
from dlsched.model.spec import AccuracyTarget
from dlsched.policies.registry import load
from tests.benchmarks.judge.test_trainings import run_of

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


def test_what_was_not_reached_is_said_of_both_sides() -> None:
    plain, own = RUNS[0], RUNS[1]
    first, second = own.run.jobs
    missed = replace(own.run, jobs=(first, replace(second, tier1_s=None)))
    runs = [plain, replace(own, run=missed)]
    found = rows("two", 2.0, runs)
    (line,) = headlines("two", found, runs)
    assert line.endswith("; 1 not reached under tradl, counted with the time to the job's end")
    # Tier 2 is in nobody's values.
    assert [row["not reached"] for row in table_rows(found, runs)] == [2, 3]


def tried(monkeypatch: pytest.MonkeyPatch, foreign_cores: Sequence[float]) -> list[object]:
    """The runs voided, while others use so many cores in one run after the other."""
    left, voided = list(foreign_cores), []
    monkeypatch.setattr(training, "run", lambda *_: SimpleNamespace(number=len(left)))
    monkeypatch.setattr(training, "void", voided.append)
    monkeypatch.setattr(
        training,
        "measured",
        lambda _: replace(RUNS[0], extra={"foreign_cores": left.pop(0)}),
    )
    training.undisturbed(SCHEDULES[0], "none", "none", 1, {})
    return voided


def test_a_run_that_others_disturbed_is_void_and_made_again(monkeypatch: pytest.MonkeyPatch):
    assert tried(monkeypatch, [0.19]) == []
    assert len(tried(monkeypatch, [0.21, 0.5, 0.0])) == 2


def test_a_host_that_is_never_quiet_is_said(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(RuntimeError, match="others use more"):
        tried(monkeypatch, [0.3] * training.TRIES)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
def test_the_job_files_are_valid_and_differ_by_seed(schedule: Schedule):
    for job in schedule.jobs:
        spec = parse_spec(schedule.text(job, 1), "job.yaml")
        one = job.model
        assert spec.target == AccuracyTarget(one.metric, one.deliver, one.finish)
        assert spec.name == job.name
        assert spec.container.command == tuple(command(one, 1))
        assert schedule.text(job, 1) != schedule.text(job, 2)


def test_schedules_are_of_the_published_kind():
    three, five = SCHEDULES
    assert [job.arrives_s for job in three.jobs] == [0.0, GAP_S, 2 * GAP_S]
    assert len({job.name for job in five.jobs}) == 5
    arrivals = [job.arrives_s for job in five.jobs]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0.0 and arrivals[-1] <= 4 * GAP_S


def test_constants_with_time_in_them_are_scaled_by_one_ratio():
    scale = GAP_S / PUBLISHED_GAP_S
    for name, plain in (
        ("flowcon-scaled", "flowcon"),
        ("tradl-scaled", "tradl"),
        ("tradl-scaled-closest", "tradl"),
        ("tradl-scaled-held", "tradl"),
    ):
        mine, default = (load(one).policy.parameters for one in (POLICIES[name], plain))  # type: ignore[attr-defined]
        for field in mine.__dataclass_fields__:
            if field in ("weights", "settled_ratio"):
                continue
            ratio = getattr(mine, field) / getattr(default, field)
            expected = scale if field.endswith("_s") else 1 / scale if field == "alpha" else 1.0
            assert ratio == pytest.approx(expected), field


def test_targets_are_what_the_saved_calibration_gives_by_its_rule():
    saved = results.load("training-calibration")
    assert saved is not None
    assert {row["model"] for row in saved["rows"]} == set(MODELS)
    for row in saved["rows"]:
        model = MODELS[row["model"]]
        lower = model.finish < model.deliver
        assert model.deliver == safe(row["held from 1/3 on"], lower=lower)
        assert model.finish == safe(row["held from 3/4 on"], lower=lower)

"""The training comparison's job set: valid files, the published kind of schedule, one scaling."""

from __future__ import annotations

import pytest

from benchmarks.publish import results
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

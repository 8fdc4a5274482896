"""The Hugging Face callback, called as Trainer calls it.

The real Trainer runs it in tests/report/test_frameworks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.report.transformers import ProgressCallback
from tests.report.jobs import run_job
from tests.report.test_entry_points import packages

pytestmark = pytest.mark.timed

Written = Callable[[], list[dict[str, Any]]]
ARGS, CONTROL = SimpleNamespace(output_dir="/nowhere"), SimpleNamespace()


def state(step: int, zero: bool = True) -> SimpleNamespace:
    return SimpleNamespace(global_step=step, is_world_process_zero=zero)


@pytest.fixture
def callback() -> ProgressCallback:
    callback = ProgressCallback()
    callback.on_train_begin(ARGS, state(0), CONTROL, model=None)
    return callback


def test_steps_and_what_they_log_are_told(written: Written, callback: ProgressCallback) -> None:
    callback.on_step_end(ARGS, state(3), CONTROL, model=None)
    callback.on_log(ARGS, state(3), CONTROL, logs={"loss": 0.5, "accuracy": 0.99, "epoch": 1.0})
    assert written() == [{"step": 3, "loss": 0.5, "train_accuracy": 0.99, "epoch": 1.0}]


def test_an_evaluation_is_told_once(written: Written, callback: ProgressCallback) -> None:
    metrics = {"eval_loss": 0.25, "eval_accuracy": 0.9, "epoch": 1.0}
    callback.on_log(ARGS, state(8), CONTROL, logs=metrics)
    assert written() == [{"step": 8, "epoch": 1.0}]
    callback.on_evaluate(ARGS, state(8), CONTROL, metrics=metrics)
    assert written() == [{"step": 8, "accuracy": 0.9, **metrics}]


def test_an_evaluation_tells_how_many_steps_there_will_be(
    written: Written, callback: ProgressCallback
) -> None:
    planned = SimpleNamespace(global_step=8, is_world_process_zero=True, max_steps=500)
    callback.on_evaluate(ARGS, planned, CONTROL, metrics={"eval_loss": 0.25})
    assert written() == [{"step": 8, "total_steps": 500, "eval_loss": 0.25}]


def test_an_evaluation_without_a_training_is_not_the_jobs_progress(written: Written) -> None:
    ProgressCallback().on_evaluate(ARGS, state(0), CONTROL, metrics={"eval_loss": 0.5})
    assert written() == [], "a step of 0 would be taken for a new attempt"


def test_a_checkpoint_is_told_where_it_lies(
    written: Written, callback: ProgressCallback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out" / "checkpoint-8").mkdir(parents=True)
    callback.on_save(SimpleNamespace(output_dir="out"), state(8), CONTROL)
    callback.on_save(SimpleNamespace(output_dir="out"), state(9), CONTROL)
    path = str(tmp_path / "out" / "checkpoint-8")
    assert written() == [{"checkpoint": {"step": 8, "path": path}}]


def test_other_ranks_are_silent(
    written: Written, callback: ProgressCallback, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint-8").mkdir()
    callback.on_step_end(ARGS, state(8, zero=False), CONTROL)
    callback.on_evaluate(ARGS, state(8, zero=False), CONTROL, metrics={"eval_loss": 1.0})
    callback.on_save(SimpleNamespace(output_dir=str(tmp_path)), state(8, zero=False), CONTROL)
    assert written() == []


def test_a_trainer_that_is_not_as_expected_is_left_alone(
    written: Written, callback: ProgressCallback
) -> None:
    callback.on_step_end(None, None, None)
    callback.on_log(None, None, None)
    callback.on_evaluate(None, None, None)
    callback.on_save(None, None, None)
    assert written() == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("class TrainerCallback:\n    pass", "transformers.TrainerCallback"),
        ("", "object"),
        ("raise RuntimeError('half installed')", "object"),
    ],
)
def test_the_import_succeeds_whatever_transformers_is_there(
    tmp_path: Path, text: str, base: str
) -> None:
    image = packages(tmp_path, transformers=text)
    job = f"""
import sys
sys.path.insert(0, {str(image)!r})
from dlsched.report.transformers import ProgressCallback
if "." in {base!r}:
    import transformers
assert ProgressCallback.__base__ is {base}
callback = ProgressCallback()
callback.on_train_begin()
callback.on_step_end(None, type("State", (), dict(global_step=1, is_world_process_zero=True)), None)
"""
    assert [line["step"] for line in run_job(job, tmp_path / "metrics.jsonl")] == [1]


def test_steps_of_training_and_evaluation_are_the_gpus_time(
    written: Written, sections: list[str]
) -> None:
    callback = ProgressCallback()
    callback.on_train_begin(ARGS, state(0), CONTROL, model=None)
    callback.on_step_begin(ARGS, state(0), CONTROL, model=None)
    callback.on_step_end(ARGS, state(1), CONTROL, model=None)
    assert sections == ["begin", "end"]
    callback.on_prediction_step(ARGS, state(1), CONTROL, model=None)
    callback.on_prediction_step(ARGS, state(1), CONTROL, model=None)
    callback.on_evaluate(ARGS, state(1), CONTROL, metrics={"eval_loss": 0.5})
    assert sections == ["begin", "end"] * 3
    callback.on_prediction_step(ARGS, state(1), CONTROL, model=None)
    callback.on_predict(ARGS, state(1), CONTROL, metrics={})
    assert sections == ["begin", "end"] * 4

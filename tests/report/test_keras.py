"""The Keras callback, called as `model.fit` calls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.report import keras as module
from dlsched.report.keras import ProgressCallback
from tests.report.jobs import run_job
from tests.report.test_entry_points import packages

pytestmark = pytest.mark.timed

Written = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(s=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.s))
    return clock


@pytest.fixture
def callback(now: SimpleNamespace) -> ProgressCallback:
    callback = ProgressCallback()
    callback.params = {"steps": 40, "epochs": 3}
    return callback


def test_a_batch_is_a_step_and_its_metrics_come_once_a_second(
    written: Written, callback: ProgressCallback, now: SimpleNamespace
) -> None:
    callback.on_epoch_begin(0)
    callback.on_train_batch_end(0, {"loss": 0.9, "accuracy": 0.1})
    callback.on_train_batch_end(1, {"loss": 0.8})
    assert written() == [{"step": 2, "loss": 0.9, "train_accuracy": 0.1}]
    now.s += 1.0
    callback.on_train_batch_end(2, {"loss": 0.7})
    assert written() == [{"step": 3, "loss": 0.7}]


def test_an_epochs_evaluation_is_told_as_held_out(
    written: Written, callback: ProgressCallback
) -> None:
    callback.on_train_batch_end(0)
    callback.on_epoch_end(0, {"loss": 0.5, "accuracy": 0.99, "val_accuracy": 0.9})
    assert written() == [
        {"step": 1, "total_steps": 120, "loss": 0.5, "train_accuracy": 0.99, "accuracy": 0.9,
         "val_accuracy": 0.9}
    ]  # fmt: skip


@pytest.mark.parametrize("params", [{"steps": None, "epochs": 3}, {"steps": 40}, None])
def test_a_training_of_unknown_length_tells_no_total(
    written: Written, callback: ProgressCallback, params: dict[str, int] | None
) -> None:
    callback.params = params
    callback.on_train_batch_end(0)
    callback.on_epoch_end(0, {"loss": 0.5})
    assert written() == [{"step": 1, "loss": 0.5}]


@pytest.mark.parametrize(("params", "step"), [({"steps": 40}, 81), ({"steps": None}, 1), (None, 1)])
def test_a_training_that_goes_on_counts_on(
    written: Written, callback: ProgressCallback, params: dict[str, int] | None, step: int
) -> None:
    callback.params = params
    callback.on_epoch_begin(2)
    callback.on_train_batch_end(0)
    assert written() == [{"step": step}]


def test_a_keras_that_is_not_as_expected_is_left_alone(
    written: Written, callback: ProgressCallback
) -> None:
    callback.params = {"steps": "many"}
    callback.on_epoch_begin(2)
    callback.on_train_batch_end(0, logs=7)
    callback.on_epoch_end(0, 7)
    assert written() == []


@pytest.mark.process
@pytest.mark.parametrize("text", ["", "raise RuntimeError('no backend')"])
def test_the_import_succeeds_without_a_usable_keras(tmp_path: Path, text: str) -> None:
    image = packages(tmp_path, keras=text)
    run_job(
        f"""
import sys
sys.path.insert(0, {str(image)!r})
from dlsched.report.keras import ProgressCallback
ProgressCallback().on_train_batch_end(0)
""",
        None,
    )

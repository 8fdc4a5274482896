"""The Lightning callback on a stand-in trainer: what it tells, when, and what it leaves alone.

The real Lightning runs it in tests/report/test_frameworks.py.
"""

from __future__ import annotations

import copy
import math
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dlsched.report import lightning as module
from dlsched.report import writer as writing
from dlsched.report.lightning import FAMILIES, callbacks, progress_callback

Written = Callable[[], list[dict[str, Any]]]


class Callback:
    """A base class such as Lightning's: every hook is there."""

    def on_fit_start(self, *_: Any) -> None:
        """A hook that we do not use."""


class Trainer(SimpleNamespace):
    """What a callback sees of a trainer in the middle of `fit`."""

    def __init__(self, *ours: Any, **more: Any) -> None:
        settings = {
            "state": SimpleNamespace(fn="fit"), "sanity_checking": False, "global_rank": 0,
            "global_step": 0, "callback_metrics": {}, "checkpoint_callbacks": [],
        }  # fmt: skip
        super().__init__(**{**settings, "callbacks": [object(), *ours], **more})
        for each in ours:
            each.setup(self, None, stage="fit")

    def batch(self, step: int, **metrics: float) -> None:
        self.global_step = step
        self.callback_metrics.update(metrics)
        for each in self.callbacks[1:]:
            each.on_train_batch_end(self, None, {}, None, step)

    def validate(self, **metrics: float) -> None:
        for each in self.callbacks[1:]:
            each.on_validation_start(self, None)
        # Lightning makes new values even where they are equal.
        self.callback_metrics.update({name: Value(value) for name, value in metrics.items()})
        for each in self.callbacks[1:]:
            each.on_validation_end(self, None)


class Value:
    """A number that is itself only, as a tensor is."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Both families are imported; the clock stands."""
    for family in FAMILIES:
        stand_in = ModuleType(family)
        stand_in.Callback = type("Callback", (Callback,), {})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, family, stand_in)
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setattr(module, "_classes", {})
    clock = SimpleNamespace(s=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.s))
    return clock


def one(family: str = "lightning.pytorch") -> Any:
    (callback,) = callbacks(family)
    return callback


@pytest.mark.parametrize("family", FAMILIES)
def test_the_callback_is_of_the_callers_family_alone(written: Written, family: str) -> None:
    other = FAMILIES[1 - FAMILIES.index(family)]
    callback = one(family)
    assert isinstance(callback, sys.modules[family].Callback)
    assert not isinstance(callback, sys.modules[other].Callback)
    callback.on_fit_start()


def test_where_nobody_asked_for_reports_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_current", None)
    assert callbacks("lightning.pytorch") == []


@pytest.mark.parametrize("fault", ["absent", "no Callback", "Callback raises"])
def test_a_lightning_that_is_not_as_expected_gets_nothing(
    written: Written, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise TypeError("abstract")

    stand_in = ModuleType("lightning.pytorch")
    if fault == "Callback raises":
        stand_in.Callback = type("Callback", (), {"__init__": refuse})  # type: ignore[attr-defined]
    monkeypatch.setitem(
        sys.modules,
        "lightning.pytorch",
        None if fault == "absent" else stand_in,  # type: ignore[arg-type]
    )
    assert callbacks("lightning.pytorch") == []


@pytest.mark.timed
def test_a_step_is_told_each_batch_and_metrics_once_a_second(
    written: Written, now: SimpleNamespace
) -> None:
    trainer = Trainer(one())
    trainer.batch(1, loss=0.9)
    now.s += 0.5
    trainer.batch(2, loss=0.8)
    assert written() == [{"step": 2, "loss": 0.9}]
    now.s += 0.5
    trainer.batch(3, loss=0.7)
    assert written() == [{"step": 3, "loss": 0.7}]


@pytest.mark.timed
def test_an_evaluation_is_told_once_and_as_accuracy(written: Written, now: SimpleNamespace) -> None:
    trainer = Trainer(one())
    trainer.batch(40, train_loss=0.5, acc=0.99)
    assert written() == [{"step": 40, "train_loss": 0.5, "train_accuracy": 0.99}]
    trainer.validate(val_acc=0.9, val_loss=0.25)
    assert written() == [{"step": 40, "accuracy": 0.9, "val_acc": 0.9, "val_loss": 0.25}]
    now.s += 10
    trainer.batch(41, train_loss=0.4)
    assert written() == [{"step": 41, "train_loss": 0.4, "train_accuracy": 0.99}]
    trainer.validate(val_acc=0.9, val_loss=0.25)
    assert written() == [{"step": 41, "accuracy": 0.9, "val_acc": 0.9, "val_loss": 0.25}]


@pytest.mark.timed
def test_a_name_that_both_log_is_the_evaluations(written: Written, now: SimpleNamespace) -> None:
    trainer = Trainer(one())
    trainer.batch(1, loss=0.5)
    trainer.validate(loss=0.25)
    now.s += 10
    trainer.batch(2, loss=0.4)
    assert written() == [{"step": 2, "loss": 0.25}]


@pytest.mark.parametrize(
    "outside",
    [
        {"sanity_checking": True},
        *({"state": SimpleNamespace(fn=name)} for name in ("validate", "test", "predict")),
    ],
)
@pytest.mark.timed
def test_outside_of_a_training_nothing_is_told(written: Written, outside: dict[str, Any]) -> None:
    trainer = Trainer(one(), **outside)
    trainer.validate(val_acc=0.1)
    assert written() == [], "a step of 0 would be taken for a new attempt"


@pytest.mark.timed
def test_what_the_last_epoch_gave_is_told_at_the_end(written: Written) -> None:
    callback = one()
    trainer = Trainer(callback)
    trainer.batch(80, loss=0.5)
    trainer.callback_metrics["loss_epoch"] = 0.6
    callback.on_train_end(trainer, None)
    assert written() == [{"step": 80, "loss": 0.5, "loss_epoch": 0.6}]


@pytest.mark.timed
def test_rank_0_alone_tells_but_every_rank_reads_alike(written: Written) -> None:
    callback = one()
    reads = []

    class Reading(Trainer):
        def __getattribute__(self, name: str) -> Any:
            if name == "callback_metrics":
                reads.append(name)
            return super().__getattribute__(name)

    trainer = Reading(callback, global_rank=1)
    trainer.validate(val_acc=0.9)
    callback.on_train_end(trainer, None)
    callback.teardown(trainer, None, "fit")
    assert written() == []
    other = len(reads)
    trainer = Reading(one())
    trainer.validate(val_acc=0.9)
    trainer.callbacks[1].on_train_end(trainer, None)
    assert len(reads) - other == other


@pytest.mark.timed
def test_of_several_in_one_trainer_the_first_speaks(written: Written) -> None:
    first, second = one(), progress_callback()
    trainer = Trainer(first, second)
    told: list[Any] = []
    second._progress.step = lambda *_, **__: told.append(1)
    trainer.batch(1, loss=0.5)
    trainer.validate(val_acc=0.9)
    assert not told
    assert written() == [{"step": 1, "loss": 0.5, "accuracy": 0.9, "val_acc": 0.9}]


def saver(**more: Any) -> SimpleNamespace:
    settings = {"last_model_path": "", "best_model_path": ""}
    return SimpleNamespace(**{**settings, **more})


@pytest.mark.parametrize(
    ("checkpoint", "told"),
    [
        (saver(_last_checkpoint_saved="/c/2.ckpt", _last_global_step_saved=2,
               best_model_path="/c/1.ckpt"), {"step": 2, "path": "/c/2.ckpt"}),
        (saver(last_model_path="/c/last.ckpt", best_model_path="/c/1.ckpt"),
         {"step": 9, "path": "/c/last.ckpt"}),
        (saver(best_model_path="s3://c/1.ckpt"), {"step": 9, "path": "s3://c/1.ckpt"}),
        (saver(best_model_path="1.ckpt"), {"step": 9, "path": str(Path.cwd() / "1.ckpt")}),
    ],
)  # fmt: skip
@pytest.mark.timed
def test_a_checkpoint_is_acknowledged_once_after_it_is_written(
    written: Written, now: SimpleNamespace, checkpoint: SimpleNamespace, told: dict[str, Any]
) -> None:
    trainer = Trainer(one(), checkpoint_callbacks=[saver(), checkpoint])
    trainer.batch(9)
    assert written() == [{"step": 9}, {"checkpoint": told}]
    now.s += 10
    trainer.batch(9)
    trainer.callbacks[1].teardown(trainer, None, stage="fit")
    assert written() == [{"step": 9}]


@pytest.mark.timed
def test_a_trainer_that_is_not_as_expected_is_left_alone(written: Written) -> None:
    callback = one()
    for hook in ("setup", "on_validation_start", "on_validation_end", "on_train_end", "teardown"):
        getattr(callback, hook)(None, None)
    callback._speaks = True
    callback.on_train_batch_end(None)
    assert written() == []


@pytest.mark.parametrize("make", [one, progress_callback])
@pytest.mark.timed
def test_it_travels_to_other_processes_with_its_trainer(
    written: Written, make: Callable[[], Any]
) -> None:
    callback = make()
    for twin in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        assert type(twin) is type(callback)
        trainer = Trainer(twin)
        trainer.batch(3)
        assert written() == [{"step": 3}]


@pytest.mark.timed
def test_a_script_may_add_it_itself_for_whatever_it_has_imported(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(isinstance(progress_callback(), sys.modules[each].Callback) for each in FAMILIES)
    for family in FAMILIES:
        monkeypatch.delitem(sys.modules, family)
    Trainer(progress_callback()).batch(1)
    assert written() == [{"step": 1}]


def test_batches_of_training_and_evaluation_are_the_gpus_time(
    written: Written, sections: list[str]
) -> None:
    callback = one()
    trainer = Trainer(callback)
    callback.on_train_batch_start(trainer, None, {}, 0)
    trainer.batch(1)
    callback.on_validation_batch_start(trainer, None, {}, 0, 0)
    callback.on_validation_batch_end(trainer, None, {}, {}, 0, 0)
    assert sections == ["begin", "end"] * 2
    callback.on_train_batch_start(trainer, None, {}, 1)
    callback.on_exception(trainer, None, RuntimeError())
    trainer.batch(2)
    assert sections == ["begin", "end"] * 3


EPOCH = {"num_training_batches": 41, "accumulate_grad_batches": 4}


@pytest.mark.parametrize(
    ("planned", "total"),
    [
        ({"max_steps": 500, "max_epochs": None}, 500),
        ({"max_steps": -1, "max_epochs": 3, **EPOCH}, 33),
        ({"max_steps": -1, "max_epochs": 3, **EPOCH, "num_training_batches": math.inf}, None),
        ({"max_steps": -1, "max_epochs": -1}, None),
    ],
)
@pytest.mark.timed
def test_an_evaluation_tells_how_many_steps_there_will_be(
    written: Written, planned: dict[str, Any], total: int | None
) -> None:
    trainer = Trainer(progress_callback(), **planned)
    trainer.batch(1)
    trainer.validate(val_loss=0.5)
    line = written()[-1]
    assert line["val_loss"] == 0.5
    assert line.get("total_steps") == total

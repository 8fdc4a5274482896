"""`accuracy` is held-out accuracy, and nothing else changes its name without need."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.report.metric_names import of_evaluation, of_training
from dlsched.report.progress import Progress


@pytest.mark.parametrize(
    "name",
    ["val_acc", "val_accuracy", "val/acc", "valid-acc", "validation_accuracy", "eval_accuracy",
     "acc", "Val_Acc", "val_acc_epoch"],
)  # fmt: skip
def test_an_evaluations_accuracy_is_told_by_both_names(name: str) -> None:
    assert of_evaluation({"val_loss": 0.5, name: 0.9}) == {
        "accuracy": 0.9, name: 0.9, "val_loss": 0.5,
    }  # fmt: skip


def test_accuracy_comes_first_since_a_line_has_an_end() -> None:
    many = {f"val_loss_{index}": 0.1 for index in range(40)}
    assert next(iter(of_evaluation({**many, "val_acc": 0.9}))) == "accuracy"


@pytest.mark.parametrize("name", ["val_top5_acc", "accuracy_gap", "val_accumulated", "loss"])
def test_what_only_resembles_it_is_not(name: str) -> None:
    assert of_evaluation({name: 0.9}) == {name: 0.9}


def test_the_scripts_own_accuracy_goes_before_ours() -> None:
    given = {"val_acc": 0.9, "accuracy": 0.8}
    assert of_evaluation(given) == given


@pytest.mark.parametrize("name", ["acc", "accuracy", "Accuracy"])
def test_a_training_batchs_accuracy_is_not_taken_for_held_out(name: str) -> None:
    assert of_training({name: 0.99, "loss": 0.1}) == {"train_accuracy": 0.99, "loss": 0.1}


def test_a_name_becomes_one_that_a_job_file_may_have() -> None:
    assert of_training({"top 5 (%)": 1, "a/b-c.d": 2, "n" * 99: 3}) == {
        "top_5____": 1, "a/b-c.d": 2, "n" * 64: 3,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["step", "self", "t", "latency"])
@pytest.mark.timed
def test_a_name_with_another_use_does_not_take_the_others_with_it(written: Any, name: str) -> None:
    Progress().step(5, **of_training({name: 3.0, "loss": 0.5}))
    assert written() == [{"step": 5, "loss": 0.5}]

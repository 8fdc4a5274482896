"""`Progress`: steps, metrics and checkpoints, and what of them is left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dlsched.report import latency
from dlsched.report.progress import Progress

pytestmark = pytest.mark.timed

Written = Callable[[], list[dict[str, Any]]]


def test_steps_count_by_themselves(written: Written) -> None:
    progress = Progress()
    progress.step(10, loss=0.5)
    progress.step(loss=Fraction(1, 4))
    assert written() == [{"step": 11, "loss": 0.25}]


@pytest.mark.parametrize(
    "metrics",
    [{"loss": "low"}, {"w": 1}, {"latency": 1}, {"n" * 65: 1}, {"a\nb": 1}],
)
def test_a_metric_that_no_line_may_hold_is_left_out(
    written: Written, metrics: dict[str, Any]
) -> None:
    Progress().step(1, **metrics)
    assert written() == [{"step": 1}]
    assert latency.dropped == 1


def test_a_diverged_training_says_so(written: Written) -> None:
    Progress().step(1, loss=math.nan, norm=-math.inf, accuracy=0.1)
    diverged = {"loss": "nan", "norm": "-inf"}
    assert written() == [{"step": 1, "accuracy": 0.1, "diverged": diverged}]


@pytest.mark.parametrize("step", [-1, 2**60, "many", math.nan, object()])
def test_an_invalid_step_is_not_reported(written: Written, step: Any) -> None:
    Progress().step(step, loss=1.0)
    Progress().checkpoint(step, "/ckpt")
    assert written() == []


@pytest.mark.parametrize("place", ["/ckpt/\n", "/c" * 1000, 7.5])
def test_a_checkpoint_with_an_invalid_path_is_not_reported(written: Written, place: Any) -> None:
    Progress().checkpoint(1, place)
    assert written() == []


def test_a_checkpoint_is_reported_with_its_path(written: Written) -> None:
    Progress().checkpoint(1200, Path("/ckpt/1200"))
    assert written() == [{"checkpoint": {"step": 1200, "path": "/ckpt/1200"}}]


def test_only_rank_0_of_a_distributed_job_reports(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    Progress().step(1, loss=3.0)
    Progress(rank=1).step(1, loss=1.0)
    assert written() == []
    Progress(rank=0).step(1, loss=0.0)
    assert written() == [{"step": 1, "loss": 0.0}]

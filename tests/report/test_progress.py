"""`Progress`: steps, metrics and checkpoints, and what of them is left out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from dlsched.report import writer as writing
from dlsched.report.progress import Progress
from dlsched.report.writer import Writer
from tests.report.jobs import told

pytestmark = pytest.mark.timed


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RANK", raising=False)
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setattr(
        writing, "_current", Writer(str(path), threaded=False, monotonic=lambda: 0.0)
    )
    return path


def flushed(path: Path) -> list[dict[str, Any]]:
    writer = writing.current()
    assert writer is not None
    writer.flush()
    return told(path) if path.exists() else []


class Scalar:
    def __float__(self) -> float:
        return 0.25


def test_steps_count_by_themselves(path: Path) -> None:
    progress = Progress()
    progress.step(10, loss=0.5)
    progress.step(loss=Scalar())
    (line,) = flushed(path)
    assert (line["step"], line["loss"]) == (11, 0.25)


@pytest.mark.parametrize(
    "metrics",
    [{"loss": "low"}, {"w": 1}, {"latency": 1}, {"n" * 65: 1}, {"a\nb": 1}],
)
def test_a_metric_that_no_line_may_hold_is_left_out(path: Path, metrics: dict[str, Any]) -> None:
    Progress().step(1, **metrics)
    (line,) = flushed(path)
    assert set(line) == {"t", "w", "step"}
    writer = writing.current()
    assert writer is not None
    assert writer.dropped == 1


def test_a_diverged_training_says_so(path: Path) -> None:
    Progress().step(1, loss=math.nan, norm=-math.inf, accuracy=0.1)
    (line,) = flushed(path)
    assert (line["step"], line["accuracy"]) == (1, 0.1)
    assert line["diverged"] == {"loss": "nan", "norm": "-inf"}


@pytest.mark.parametrize("step", [-1, 2**60, "many", math.nan, object()])
def test_a_step_that_is_none_is_not_told(path: Path, step: Any) -> None:
    Progress().step(step, loss=1.0)
    Progress().checkpoint(step, "/ckpt")
    assert flushed(path) == []


@pytest.mark.parametrize("place", ["/ckpt/\n", "/c" * 1000, 7.5])
def test_a_checkpoint_in_no_place_is_not_told(path: Path, place: Any) -> None:
    Progress().checkpoint(1, place)
    assert flushed(path) == []


def test_a_checkpoint_is_told_with_its_path(path: Path) -> None:
    Progress().checkpoint(1200, Path("/ckpt/1200"))
    (line,) = flushed(path)
    assert line["checkpoint"] == {"step": 1200, "path": "/ckpt/1200"}


def test_of_a_distributed_job_rank_0_alone_reports(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    Progress().step(1, loss=3.0)
    Progress(rank=1).step(1, loss=1.0)
    assert flushed(path) == []
    Progress(rank=0).step(1, loss=0.0)
    assert [line["loss"] for line in flushed(path)] == [0.0]

"""`latency`: what counts as a latency, as an error, as neither; and that nothing is raised."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dlsched.report import writer as writing
from dlsched.report.timing import Measurement, latency
from dlsched.report.writer import Writer
from tests.report.jobs import told

pytestmark = pytest.mark.timed


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setattr(
        writing, "_current", Writer(str(path), threaded=False, monotonic=lambda: 0.0)
    )
    return path


def flushed(path: Path) -> dict[str, object]:
    writer = writing.current()
    assert writer is not None
    writer.flush()
    (line,) = told(path)
    counted: dict[str, object] = line["latency"]
    return counted


def test_a_body_that_ends_is_measured(path: Path) -> None:
    with latency.measure():
        pass
    assert flushed(path)["count"] == 1


@pytest.mark.parametrize(
    ("raised", "errors"), [(ValueError, 1), (KeyboardInterrupt, 0), (GeneratorExit, 0)]
)
def test_a_body_that_raises_is_not(path: Path, raised: type[BaseException], errors: int) -> None:
    latency.observe(0.5)
    with pytest.raises(raised), latency.measure():
        raise raised
    counted = flushed(path)
    assert (counted["count"], counted.get("errors", 0)) == (1, errors)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, "slow", None, object(), 10**400])
def test_what_is_no_latency_is_dropped(path: Path, seconds: float) -> None:
    latency.observe(seconds)
    latency.error()
    counted = flushed(path)
    assert (counted["count"], counted["errors"]) == (0, 1)


def test_a_second_end_changes_nothing(path: Path) -> None:
    measurement = Measurement()
    measurement.begin()
    measurement.end()
    measurement.end("error")
    assert "errors" not in flushed(path)


def test_without_a_metrics_file_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_current", writing._UNKNOWN)
    monkeypatch.delenv("DLSCHED_METRICS_FILE", raising=False)
    with latency.measure():
        latency.observe(1.0)
        latency.error()
    assert latency.dropped == 0
    assert writing.current() is None

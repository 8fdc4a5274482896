"""`latency`: what counts as a latency, as an error, as neither; and that nothing is raised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from dlsched.report import writer as writing
from dlsched.report.timing import Measurement, latency

pytestmark = pytest.mark.timed


Written = Callable[[], list[dict[str, Any]]]


def test_a_body_that_ends_is_measured(written: Written) -> None:
    with latency.measure():
        pass
    assert written()[0]["latency"]["count"] == 1


@pytest.mark.parametrize(
    ("raised", "errors"), [(ValueError, 1), (KeyboardInterrupt, 0), (GeneratorExit, 0)]
)
def test_a_body_that_raises_is_not_measured(
    written: Written, raised: type[BaseException], errors: int
) -> None:
    latency.observe(0.5)
    with pytest.raises(raised), latency.measure():
        raise raised
    counted = written()[0]["latency"]
    assert (counted["count"], counted.get("errors", 0)) == (1, errors)


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, "slow", None, object(), 10**400])
def test_an_invalid_latency_is_dropped(written: Written, seconds: float) -> None:
    latency.observe(seconds)
    latency.error()
    counted = written()[0]["latency"]
    assert (counted["count"], counted["errors"]) == (0, 1)


def test_a_second_end_changes_nothing(written: Written) -> None:
    measurement = Measurement()
    measurement.begin()
    measurement.end()
    measurement.end("error")
    assert "errors" not in written()[0]["latency"]


def test_without_a_metrics_file_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_current", writing._UNKNOWN)
    monkeypatch.delenv("DLSCHED_METRICS_FILE", raising=False)
    with latency.measure():
        latency.observe(1.0)
        latency.error()
    assert latency.dropped == 0
    assert writing.current() is None

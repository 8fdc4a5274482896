"""Real services: their sets, what counts as harm, rows and tables, and a daemon that dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from benchmarks.real import comparison, http_services
from benchmarks.real.comparison import draw, run_policy, spec_text, targets_at
from benchmarks.real.http_services import (
    SCENARIOS,
    Measured,
    beside_table,
    harmed,
    headlines,
    real_table,
)
from dlsched.config.job import parse_spec
from dlsched.model.errors import DaemonUnavailable
from dlsched.model.spec import LatencyTarget


def test_the_job_files_are_valid():
    for job in draw(3):
        spec = parse_spec(spec_text(job, 0.0421), "job.yaml")
        assert spec.target == LatencyTarget(0.0421)
        assert spec.name == job.name


ROW = Measured("beside", "none", 1, "a", 25.0, 100, 0, 10.0, 20.0, 0, 0.0, 0.0)


def test_harm_is_more_than_a_tenth_and_two_milliseconds() -> None:
    for mean_ms, found in ((12.9, []), (13.1, ["a (mean 13.1 ms, plain 10 ms)"])):
        mine = [ROW, replace(ROW, policy="adaptive", mean_ms=mean_ms)]
        assert harmed(real_table(mine)) == found
    slow = [ROW, replace(ROW, policy="adaptive", p95_ms=24.1)]
    assert harmed(real_table(slow)) == ["a (p95 24.1 ms, plain 20 ms)"]


def test_a_service_that_answers_nothing_is_harmed() -> None:
    mine = [ROW, replace(ROW, policy="adaptive", failed=9, mean_ms=None, p95_ms=None)]
    (line,) = real_table(mine)
    assert len(harmed([line])) == 2
    assert line["failed"] == 9


def test_what_it_cost_the_trainings_is_told() -> None:
    plain = replace(ROW, trainings_core_s=64.2)
    own = replace(ROW, policy="adaptive", updates_per_min=3.0, trainings_core_s=61.0)
    (line,) = beside_table([plain, own])
    assert (line["of plain Docker's"], line["updates a minute"]) == (0.95, 3.0)


def test_runs_count_in_their_median() -> None:
    mine = [replace(ROW, policy="adaptive", run=n, mean_ms=ms) for n, ms in enumerate((5, 7, 90))]
    (line,) = real_table([ROW, *mine])
    assert line["mean, adaptive"] == 7
    told = headlines([{**line, "cycles with a ceiling": 3}])
    assert "none of 1" in told[0]
    assert "1 of 1" in told[1]


@pytest.mark.parametrize(
    "measure",
    [
        pytest.param(lambda one: targets_at(one, {"a": 1.0}), id="targets"),
        pytest.param(lambda one: run_policy(one, 7, 0.7, "none", {}, (1.0, 1.0)), id="a policy"),
        pytest.param(lambda one: http_services.measure(one, SCENARIOS[0], "none", 7), id="traffic"),
    ],
)
def test_a_daemon_that_dies_while_it_is_measured_gives_no_result(
    monkeypatch: pytest.MonkeyPatch, measure: Callable[[Any], object]
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(
        comparison, "time", SimpleNamespace(sleep=lambda _: None, monotonic=clock.__next__)
    )
    monkeypatch.setattr(http_services, "_clients", lambda *_: {"a": {"sent": 1}})
    session = MagicMock()
    session.cycle.side_effect = [1, DaemonUnavailable("no daemon answers")]
    with pytest.raises(DaemonUnavailable):
        measure(session)

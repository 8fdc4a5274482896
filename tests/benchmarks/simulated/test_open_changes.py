"""The worlds of `open-changes`, and what is said of them."""

from __future__ import annotations

import pytest

from benchmarks.simulated.open_changes import (
    CHANGES,
    CHANGES_AT_S,
    RARE,
    Row,
    changed,
    headlines,
    table_of,
)
from benchmarks.simulated.open_loop import _need_cores
from dlsched.simulation.node.workloads import ServiceLoad

HALF = "half the node taken by others"
REPORTS = next(iter(RARE))


def test_a_change_comes_to_services_or_to_the_host() -> None:
    (taken,) = changed(HALF, 1).host
    assert taken.at_s == CHANGES_AT_S
    trace = changed("twice the requests, 2 trainings", 1)
    assert not trace.host
    for job in trace.jobs:
        assert [one.arrivals for one in job.shifts] == [2.0] * isinstance(job.load, ServiceLoad)


def test_the_clairvoyant_knows_what_a_load_changes_to() -> None:
    before, after = changed(HALF, 1).jobs[0], changed("twice the requests, too many", 1).jobs[0]
    loads = [job.load for job in (before, after)]
    rates = [one.loop.rate_per_s for one in loads if isinstance(one, ServiceLoad) and one.loop]
    works = [one.work_core_s for one in loads if isinstance(one, ServiceLoad)]
    assert _need_cores(before) == pytest.approx(rates[0] * works[0])
    assert _need_cores(after) == pytest.approx(2.0 * rates[1] * works[1])


def test_each_figure_is_said_to_be_reached_or_not() -> None:
    fine = [Row(name, 1, 1.0, 9.0, 5.0, 10.0) for name in CHANGES]
    fine += [Row(REPORTS, 1, 5.0, 9.5, 5.0, 10.0), Row(REPORTS, 1, 30.0, 8.0, 5.0, 10.0)]
    assert [one.rpartition(": ")[2] for one in headlines(table_of(fine))] == ["reached"] * 2
    slow = [*fine, Row(REPORTS, 2, 5.0, 9.3, 5.0, 10.0), Row(HALF, 2, 1.0, 8.8, 5.0, 10.0)]
    changes, reports = headlines(table_of(slow))
    assert "the worst 0.890" in changes and changes.endswith("not reached")
    assert f"0.940 ({REPORTS}, a report every 5 s)" in reports and reports.endswith("not reached")

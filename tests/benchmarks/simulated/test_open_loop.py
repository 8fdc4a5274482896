"""Played requests: worlds, their changes, and what is said of them."""

from __future__ import annotations

import copy
from array import array
from dataclasses import replace

import pytest

from benchmarks.simulated import open_loop
from benchmarks.simulated.open_changes import (
    CHANGES,
    CHANGES_AT_S,
    RARE,
    Row,
    changed,
    headlines,
    table_of,
)
from benchmarks.simulated.open_loop import (
    Measured,
    _need_cores,
    compare,
    headlines_of,
    interval,
    play_requests,
    tables_of,
)
from dlsched.model.spec import LatencyTarget
from dlsched.simulation.node.played import PlayedService
from dlsched.simulation.node.workloads import ServiceLoad
from tests.worlds.harm import worse_jobs
from tests.worlds.open_worlds import Scenario, world


@pytest.fixture(scope="module")
def full() -> list[Measured]:
    """Poisson loops that want 1.3 times the node."""
    return compare(Scenario("poisson", 1.3), 12, 202, ("none", "adaptive"))


@pytest.mark.long
def test_above_capacity_the_default_policy_chooses_whom_it_can_serve(full: list[Measured]) -> None:
    plain, own, best = (row.met_jobs for row in full)
    assert plain < 0.5 * best
    assert own >= 0.8 * best
    assert full[1].worse_jobs == 0


@pytest.mark.long
def test_a_bench_says_how_far_each_figure_is(full: list[Measured]) -> None:
    assert set(tables_of(full)) >= {"Services not slower than their targets", "Updates a minute"}
    (line,) = [one for one in headlines_of(full) if one.startswith("Above capacity")]
    assert line.endswith(": reached") or line.endswith(": not reached")
    missed = [replace(row, met_jobs=0.0) for row in full]
    (line,) = [one for one in headlines_of(missed) if one.startswith("Above capacity")]
    assert line.endswith("over 1 seeds; poisson, 1.3 of the cores, n = 12): not reached")


@pytest.mark.parametrize(("weight", "worse"), [(1.0, 0), (0.5, 1)])
def test_a_target_lost_is_harm_unless_another_of_its_weight_is_won(
    weight: float, worse: int
) -> None:
    trace = world(Scenario("poisson", 0.95), 6, 1)
    jobs = [replace(job, spec=replace(job.spec, target=LatencyTarget(60.0))) for job in trace.jobs]
    jobs[1] = replace(jobs[1], spec=replace(jobs[1].spec, weight=weight))
    trace = replace(trace, jobs=tuple(jobs))
    plain = play_requests(trace, "none", 1).loads
    own = copy.deepcopy(plain)
    assert worse_jobs(trace, plain, own) == 0
    for loads, name in ((own, "service-00"), (plain, "service-01")):
        slow = loads[name]
        assert isinstance(slow, PlayedService)
        slow.took_s = array("d", [120.0] * len(slow.took_s))
    assert worse_jobs(trace, plain, own) == worse


def test_within_the_band_is_judged_over_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the stretches are too slow, half too fast; over all it is as asked."""
    monkeypatch.setattr(open_loop, "WINDOW_REQUESTS", 10)
    trace = world(Scenario("poisson", 0.1), 1, 1)
    (job,) = trace.jobs
    trace = replace(trace, jobs=(replace(job, spec=replace(job.spec, target=LatencyTarget(1.0))),))
    played = play_requests(trace, "none", 1)
    (one,) = played.services().values()
    one.came_s = array("d", [30.0 * stretch for stretch in range(5) for _ in range(5)])
    one.took_s = array("d", [9.0] * 5 + ([0.5] * 5 + [1.5] * 5) * 2)
    assert open_loop.satisfied_jobs(trace, played) == 1.0
    assert open_loop.met_jobs(trace, played) == 0.5
    one.took_s = array("d", [9.0] * 5 + ([0.5] * 5 + [1.5] * 5) + [3.0] * 10)
    assert open_loop.satisfied_jobs(trace, played) == 0.5


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide() -> None:
    low, high = interval([float(one % 2) for one in range(100)])
    assert 0.38 < low < 0.42 and 0.58 < high < 0.62


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

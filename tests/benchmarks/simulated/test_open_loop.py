"""Played requests: worlds, their changes, and what is said of them."""

from __future__ import annotations

import copy
from array import array
from dataclasses import replace

import pytest

from benchmarks.simulated.open_loop import (
    CHANGES,
    Changed,
    Measured,
    _need_cores,
    changed,
    changes_headline,
    compare,
    headlines_of,
    play_requests,
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
    (line,) = [one for one in headlines_of(full) if one.startswith("Above capacity")]
    assert line.endswith(": reached") or line.endswith(": not reached")
    missed = [replace(row, met_jobs=0.0) for row in full]
    (line,) = [one for one in headlines_of(missed) if one.startswith("Above capacity")]
    assert line.endswith("in 1 seeds; poisson, 1.3 of the cores, n = 12): not reached")


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


HALF = "half the node taken by others"


def test_the_clairvoyant_knows_what_a_load_changes_to() -> None:
    before, after = changed(HALF, 1).jobs[0], changed("twice the requests, too many", 1).jobs[0]
    loads = [job.load for job in (before, after)]
    rates = [one.loop.rate_per_s for one in loads if isinstance(one, ServiceLoad) and one.loop]
    works = [one.work_core_s for one in loads if isinstance(one, ServiceLoad)]
    assert _need_cores(before) == pytest.approx(rates[0] * works[0])
    assert _need_cores(after) == pytest.approx(2.0 * rates[1] * works[1])


def test_each_figure_is_said_to_be_reached_or_not() -> None:
    fine = [Changed(name, 1, 9.0, 5.0, 10.0) for name in CHANGES]
    assert changes_headline(fine).endswith(": reached")
    told = changes_headline([*fine, Changed(HALF, 2, 8.8, 5.0, 10.0)])
    assert f"the worst 0.890 ({HALF})" in told and told.endswith("not reached")

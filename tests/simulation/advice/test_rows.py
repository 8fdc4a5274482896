"""Rows of `dlsched recommend` contradict neither themselves nor what their record shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.estimate.sketch import from_latencies, merge
from dlsched.model.facts import LatencySketch
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView
from dlsched.simulation.advice.result import Recommended
from dlsched.simulation.node.curves import Curve
from dlsched.simulation.node.workloads import HostLoad, ServiceLoad, Trace, TrainingLoad
from tests.lanes import but_the_first_long
from tests.simulation.advice.test_adviser import CLOSED, advice_of, advised, named
from tests.simulation.worlds import asked, day, job, run, seen

SELDOM = ServiceLoad(work_core_s=0.1, overhead_s=0.005, threads=2.0, arrivals_per_s=1.0)
HOG = TrainingLoad(10**6, 0.1, 100, Curve(0.1, 0.95, 120_000, "exponential"), threads=4.0)


def holds(one: Recommended) -> None:
    """Whether the row says one thing."""
    out_of_reach, measured = one.need.out_of_reach, one.measured
    if out_of_reach is not None:
        assert one.min_cores is None, one
        assert one.need.does_not_fit is None, one
        if measured is not None and isinstance(one.target, LatencyTarget):
            assert measured.seconds > one.target.seconds, one
    if measured is not None:
        assert "no request" not in one.why, one
    if one.max_cores is not None:
        assert one.min_cores is not None and one.min_cores <= one.max_cores, one
    if one.target is None:
        assert (one.min_cores, one.max_cores) == (None, None), one


BUSY = (HostLoad(0.0, 300.0, 3.0, 1024),)


@pytest.mark.parametrize("policy", but_the_first_long(["adaptive", "none", "dqoes"]))
@pytest.mark.parametrize(
    "trace",
    [
        day(*(job(f"s{n}", SELDOM, LatencyTarget(0.07)) for n in range(8))),
        day(job("hog", HOG, None), job("too", HOG, None), job("s", CLOSED, LatencyTarget(0.035))),
        replace(day(job("a", CLOSED, LatencyTarget(0.2)), job("b", CLOSED, None)), host=BUSY),
        replace(day(*(job(f"s{n}", CLOSED, LatencyTarget(0.06)) for n in range(3))), host=BUSY),
        day(job("few", replace(SELDOM, arrivals_per_s=0.02), LatencyTarget(0.1, 0.95))),
    ],
    ids=["seldom-asked", "hogs", "busy-host", "crowded-busy-host", "few-requests"],
)
def test_each_row_says_one_thing(trace: Trace, policy: str) -> None:
    for one in advised(trace, policy).jobs:
        holds(one)


def test_needs_that_do_not_fit_put_nothing_out_of_reach_that_was_met() -> None:
    services = (job(f"s{n}", SELDOM, LatencyTarget(0.07)) for n in range(8))
    rows = advised(day(*services)).jobs
    assert [one.measured is not None and one.measured.met_ratio > 0.9 for one in rows] == [True] * 8
    assert all(one.need.out_of_reach is None for one in rows)
    lost = [one for one in rows if one.min_cores is None]
    assert lost
    for one in lost:
        assert one.why.startswith("its target was met so far: no limit; ")
    given = [one.min_cores for one in rows if one.min_cores is not None]
    assert sum(given) <= 4.0
    assert any("the larger does not fit beside the others" in one.why for one in rows)
    assert any(one.why.startswith("probably meets its target; ") for one in rows)


def test_what_has_no_target_comes_after_all_that_have_one_and_misses_none() -> None:
    need = LatencyTarget(0.035)  # most of the node
    jobs = [job("s", replace(CLOSED, threads=4.0), need), *(job(n, CLOSED, None) for n in "ab")]
    found = named(advised(day(*jobs)))
    assert found["s"].need.out_of_reach is None and found["s"].min_cores is not None
    for name in "ab":
        one = found[name]
        assert (one.need.out_of_reach, one.min_cores, one.max_cores) == (None, None, None)
        assert one.why.startswith("no target: no limit; its CPU weight gives it ")


def test_a_few_requests_are_told() -> None:
    few = replace(SELDOM, arrivals_per_s=0.02)
    never = replace(SELDOM, arrivals_per_s=1e-6)
    found = named(advised(day(*(job(n, one, LatencyTarget(0.2)) for n, one in
                               (("few", few), ("never", never))))))  # fmt: skip
    requests = found["few"].measured
    assert requests is not None and requests.requests < 20
    assert f"only {requests.requests} requests of it were read" in found["few"].why
    assert found["never"].measured is None
    assert "no request of it was read" in found["never"].why


def test_requests_without_windows_are_not_called_none() -> None:
    """Its limit changed in every cycle, so no cycle is under one limit."""
    trace = day(job("s", CLOSED, LatencyTarget(0.2)))
    restless = [
        seen(report, lambda view, report=report: replace(view, changed_at_s=report.snapshot.now_s))
        for report in run(trace)
    ]
    (one,) = advice_of(restless).jobs
    assert one.measured is not None and one.measured.met_ratio > 0.9
    assert one.min_cores is None
    assert "its requests were too few to tell what each one computes" in one.why


def test_a_forecast_of_the_policy_gives_way_to_what_was_met() -> None:
    """Of a service that used all of its limit, so that what more would do is assumed."""
    hopeless = Forecast(ForecastKind.IMPOSSIBLE, "latency", why="mean 60 ms: 395 ms at best")
    trace = day(job("s", CLOSED, LatencyTarget(0.06)), *(job(f"h{n}", HOG, None) for n in range(6)))
    reports = [replace(one, outlooks={"s": (hopeless,)}) for one in run(trace)]
    (missed,) = [one for one in advice_of(reports).jobs if one.name == "s"]
    assert missed.need.out_of_reach == "the policy found: mean 60 ms: 395 ms at best"
    fast = [
        seen(one, lambda view: faster(view, 0.05) if view.name == "s" else view) for one in reports
    ]
    (met,) = [one for one in advice_of(fast).jobs if one.name == "s"]
    holds(met)
    assert met.need.out_of_reach is None


@pytest.mark.parametrize("history", [0, 5000])
def test_what_a_page_counted_before_the_adoption_is_not_measured(history: int) -> None:
    """Journals of earlier versions have it once for each adoption, as if it had just come."""
    trace = day(job("s", CLOSED, LatencyTarget(0.2)))
    old = LatencySketch() if not history else from_latencies([2.0] * history)
    first = True

    def adopted(view: JobView) -> JobView:
        nonlocal first
        fresh = view.progress.fresh
        if fresh.count and first and history:
            first, fresh = False, merge(fresh, old)
        progress = replace(view.progress, fresh=fresh)
        return replace(view, adopted=True, progress=progress)

    reports = run(trace)
    (plain,) = advice_of(reports).jobs
    (one,) = advice_of(seen(report, adopted) for report in reports).jobs
    assert plain.measured.requests - 50 < one.measured.requests < plain.measured.requests
    assert one.measured.seconds == pytest.approx(plain.measured.seconds, rel=0.02)
    assert one.min_cores == pytest.approx(plain.min_cores, rel=0.02)


def test_another_target_is_measured_anew() -> None:
    trace = day(job("s", CLOSED, LatencyTarget(0.01)))
    later = LatencyTarget(0.2)
    reports = [
        one if one.snapshot.now_s < 200 else seen(one, lambda view: asked(view, later))
        for one in run(trace)
    ]
    (one,) = advice_of(reports).jobs
    assert one.target == later
    assert one.measured is not None and one.measured.met_ratio == 1.0
    whole = sum(view.progress.fresh.count for each in reports for view in each.snapshot.jobs)
    assert one.measured.requests < 0.5 * whole, "those before are of another target"


def faster(view: JobView, seconds: float) -> JobView:
    """With as many requests, each of that latency."""
    fresh = view.progress.fresh
    found = from_latencies([seconds] * fresh.count) if fresh.count else fresh
    return replace(view, progress=replace(view.progress, fresh=found))

"""Slices: time on target, slow and silent; whose CPU time was whose."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.estimate.sketch import from_latencies, measured_s, merge
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import (
    AccuracyTarget,
    ContainerSpec,
    JobSpec,
    LatencyTarget,
    Limits,
    Target,
    Tier,
)
from dlsched.model.state import JobState, JobView, NodeView, Progress, Reached, Snapshot, Tiers
from dlsched.review.tally import HOLD_S, JobTally, Tally

TARGET = LatencyTarget(0.1)
NO_TIERS = Tiers()


def view(
    name: str,
    used_core_s: float,
    latencies_s: tuple[float, ...] = (),
    *,
    target: Target | None = TARGET,
    weight: float = 1.0,
    oldest_s: float = 0.0,
    state: JobState = JobState.RUNNING,
    tiers: Tiers = NO_TIERS,
) -> JobView:
    spec = JobSpec(name, ContainerSpec("image"), weight=weight, target=target)
    fresh = from_latencies(latencies_s) if latencies_s else LatencySketch()
    return JobView(
        spec,
        state,
        progress=Progress(fresh=fresh, oldest_s=oldest_s),
        attained_core_s=used_core_s,
        actual=Limits(1.0),
        cpu_shares=1024,
        tiers=tiers,
    )


def cycle(now_s: float, *jobs: JobView, cores: float = 4.0) -> CycleReport:
    node = NodeView(cores, cores, 1 << 30, foreign_cores=0.25)
    moment = f"2026-11-24T07:00:{now_s % 60:06.3f}Z"
    return CycleReport(Snapshot(int(now_s) + 1, now_s, node, jobs), "adaptive", wall_time=moment)


def tallied(*reports: CycleReport, slice_s: float = 10.0) -> Tally:
    tally = Tally(slice_s)
    for report in reports:
        tally.take(report)
    tally.close()
    return tally


def served(latency_s: float, count: int, from_s: int, to_s: int) -> list[CycleReport]:
    """A second each, so many requests of that latency in it."""
    return [cycle(now_s, view("a", now_s, (latency_s,) * count)) for now_s in range(from_s, to_s)]


def asking(every_s: int, latency_s: float, until_s: int) -> list[CycleReport]:
    """A request of that latency so often."""
    return [
        cycle(now_s, view("a", now_s, (latency_s,) if now_s % every_s == every_s - 1 else ()))
        for now_s in range(until_s)
    ]


def reporting(seen: JobView, fresh: LatencySketch, from_s: int, to_s: int) -> list[CycleReport]:
    """The same requests each second."""
    seen = replace(seen, progress=Progress(fresh=fresh))
    return [
        cycle(now_s, replace(seen, attained_core_s=float(now_s))) for now_s in range(from_s, to_s)
    ]


FINE = [*served(0.05, 2, 0, 31)]
COARSE = LatencySketch(10, 0.7, spans=((0.0, 0.1, 10),))
QUICK = from_latencies([0.01] * 4)


@pytest.mark.parametrize(
    ("reports", "met_s", "slow_s", "silent_s", "ratio"),
    [
        pytest.param(
            [
                *served(0.05, 2, 0, 41),
                *served(0.2, 2, 41, 61),
                *(cycle(now_s, view("a", now_s)) for now_s in range(61, 181)),
            ],
            40.0, 20.0, 120.0, {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5, 4: 2.0, 5: 2.0},
            id="met, slow, silent",
        ),
        pytest.param(
            reporting(view("a", 0.0, target=LatencyTarget(0.05, 0.95)), COARSE, 0, 21),
            0.0, 0.0, 0.0, {}, id="unclear where buckets are too coarse",
        ),
        pytest.param(
            reporting(view("a", 0.0), QUICK, 0, 11)
            + reporting(view("a", 0.0), replace(QUICK, errors=6), 11, 21),
            10.0, 10.0, 0.0, {0: 0.1, 1: math.inf},
            id="quick answers while requests fail are slow",
        ),
        pytest.param(
            reporting(view("a", 0.0), LatencySketch(errors=1), 0, 21),
            0.0, 20.0, 0.0, {0: math.inf, 1: math.inf}, id="slow while every request fails",
        ),
        # Five of them take 25 s, three slices.
        pytest.param(
            asking(5, 0.05, 91), 90.0, 0.0, 0.0, dict.fromkeys(range(9), 0.5),
            id="few requests are held until they suffice",
        ),
        pytest.param(
            asking(30, 0.5, int(2 * HOLD_S) + 1), 0.0, 0.0, 2 * HOLD_S, {},
            id="too few requests in a minute are silence",
        ),
        pytest.param(
            [
                *FINE,
                *(cycle(now_s, view("a", now_s, oldest_s=now_s - 20)) for now_s in range(31, 61)),
            ],
            30.0, 30.0, 0.0, {0: 0.5, 1: 0.5, 2: 0.5, 3: math.inf, 4: math.inf, 5: math.inf},
            id="a service that hangs is slow and not silent",
        ),
        pytest.param(
            FINE * 2, 30.0, 0.0, 0.0, {0: 0.5, 1: 0.5, 2: 0.5},
            id="a clock that goes back is left out",
        ),
    ],
)  # fmt: skip
def test_time_is_met_slow_or_silent(
    reports: list[CycleReport],
    met_s: float,
    slow_s: float,
    silent_s: float,
    ratio: dict[int, float],
) -> None:
    job = tallied(*reports).jobs["a"]
    assert (job.met_s, job.slow_s, job.silent_s) == (met_s, slow_s, silent_s)
    assert job.met_ratio == (met_s / (met_s + slow_s) if met_s + slow_s else None)
    assert job.unclear_s == job.ran_s - met_s - slow_s - silent_s
    assert job.ratio == pytest.approx(ratio)


def test_what_is_measured_is_of_all_requests_and_failures_are_told_apart() -> None:
    job = tallied(*served(0.05, 2, 0, 41), *served(0.2, 2, 41, 61)).jobs["a"]
    assert job.latency.count == 120
    assert job.measured_s == pytest.approx((80 * 0.05 + 40 * 0.2) / 120)
    failing = reporting(view("a", 0.0), replace(QUICK, errors=6), 0, 21)
    assert tallied(*failing).jobs["a"].failing_s == 20.0


def test_a_changed_target_judges_what_came_after_it() -> None:
    later = [
        cycle(now_s, view("a", now_s, (0.05,) * 2, target=LatencyTarget(0.04)))
        for now_s in range(31, 61)
    ]
    job = tallied(*served(0.05, 2, 0, 31), *later).jobs["a"]
    assert (job.met_s, job.slow_s) == (0.0, 30.0), "what was met was another target"
    assert (job.latency.count, job.retargeted) == (60, True)


def test_a_gap_counts_for_no_job() -> None:
    reports = [*served(0.05, 2, 0, 31), *served(0.05, 2, 1031, 1061)]
    tally = tallied(*reports)
    job = tally.jobs["a"]
    assert tally.gaps_s == [1001.0]
    assert (job.met_s, job.ran_s) == (59.0, 59.0)
    assert job.used_core_s == pytest.approx(59.0)


def test_what_one_borrowed_another_lent() -> None:
    """Four cores by weights 1 and 3: `a` uses 2 of its 1, `b` 1.5 of its 3."""
    reports = [
        cycle(now_s, view("a", 2.0 * now_s), view("b", 1.5 * now_s, weight=3.0))
        for now_s in range(101)
    ]
    tally = tallied(*reports)
    a, b = tally.jobs["a"], tally.jobs["b"]
    assert (a.fair_core_s, b.fair_core_s) == (pytest.approx(100.0), pytest.approx(300.0))
    assert (a.borrowed_core_s, a.lent_core_s) == (pytest.approx(100.0), 0.0)
    # Of the 150 core-seconds that `b` left, 50 were used by no one.
    assert (b.borrowed_core_s, b.lent_core_s) == (0.0, pytest.approx(100.0))
    assert tally.foreign_core_s == pytest.approx(25.0)


@given(
    st.lists(
        st.tuples(
            st.floats(0.5, 3.0),
            *(
                st.tuples(
                    st.floats(0.0, 2.0), st.integers(0, 3), st.floats(0.01, 0.4), st.booleans()
                )
                for _ in range(2)
            ),
        ),
        min_size=2,
        max_size=60,
    )
)
def test_all_time_is_accounted_for(steps: list[tuple[float, ...]]) -> None:
    now_s, used = 0.0, [0.0, 0.0]
    reports = []
    for length_s, *jobs in steps:
        now_s += length_s
        views = []
        for place, (cores, count, latency_s, runs) in enumerate(jobs):  # type: ignore[misc]
            used[place] += cores * length_s if runs else 0.0
            state = JobState.RUNNING if runs else JobState.PAUSED
            requests = (latency_s,) * count if runs else ()
            views.append(view(f"job-{place}", used[place], requests, state=state))
        reports.append(cycle(now_s, *views))
    tally = tallied(*reports)
    for name, job in tally.jobs.items():
        assert job.met_s + job.slow_s + job.silent_s == pytest.approx(job.ran_s)
        assert job.ran_s <= tally.observed_s + 1e-6
        assert all(0.0 <= one.ran_ratio <= 1.0 + 1e-9 for one in job.given.values())
        fresh = [
            one.progress.fresh
            for report in reports[1:]
            for one in report.snapshot.jobs
            if one.name == name
        ]
        assert job.latency.count <= merge(*fresh).count
    borrowed = math.fsum(job.borrowed_core_s for job in tally.jobs.values())
    lent = math.fsum(job.lent_core_s for job in tally.jobs.values())
    assert lent <= borrowed + 1e-6


@given(st.lists(st.floats(0.001, 1.0), min_size=5, max_size=80))
def test_one_slice_is_judged_by_all_of_its_requests(latencies_s: list[float]) -> None:
    p95 = LatencyTarget(0.1, 0.95)
    reports = [cycle(0.0, view("a", 0.0, target=p95))]
    reports += [cycle(5.0, view("a", 1.0, tuple(latencies_s), target=p95))]
    job = tallied(*reports, cycle(10.0, view("a", 2.0, target=p95))).jobs["a"]
    found_s = measured_s(from_latencies(latencies_s), 0.95)
    assert (job.met_s, job.slow_s) == ((10.0, 0.0) if found_s <= 0.1 else (0.0, 10.0))
    assert job.ratio == {0: pytest.approx(found_s / 0.1)}


def test_tiers_are_reached_in_the_range_or_before() -> None:
    target = AccuracyTarget("accuracy", 0.5, 0.9)
    delivered = Tiers(Reached(-5.0, 0.6))
    both = Tiers(Reached(-5.0, 0.6), Reached(7.5, 0.91))
    reports = [
        cycle(now_s, view("t", now_s, target=target, tiers=delivered if now_s < 8 else both))
        for now_s in range(20)
    ]
    job = tallied(*reports).jobs["t"]
    assert job.reached_before == {Tier.DELIVER}
    assert job.reached == {Tier.FINISH: (7.5, "2026-11-24T07:00:08.000Z")}
    assert job.ran_before


@pytest.mark.parametrize(("used_core_s", "ran_before"), [(8.0, False), (60.0, True)])
def test_more_cpu_time_than_there_was_since_the_beginning_is_from_before(
    used_core_s: float, ran_before: bool
) -> None:
    """Two seconds on four cores: after a restart the daemon sees it in its third cycle."""
    empty = [cycle(0.0), cycle(1.0)]
    tally = tallied(*empty, *(cycle(now_s, view("a", used_core_s + now_s)) for now_s in (2, 3)))
    assert tally.jobs["a"].ran_before is ran_before


def test_jobs_counted_under_another_name_are_one() -> None:
    tally = Tally(10.0, {"a-2": "a"})
    for report in served(0.05, 2, 0, 31):
        tally.take(report)
    for now_s in range(40, 71):
        one = view("a", now_s - 40.0, (0.2,) * 2)
        tally.take(cycle(now_s, replace(one, spec=replace(one.spec, name="a-2"))))
    tally.close()
    assert tally.jobs.keys() == {"a"}
    job: JobTally = tally.jobs["a"]
    assert (job.met_s, job.slow_s) == (30.0, 30.0)

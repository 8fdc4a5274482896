"""One service: latency = a + w / c, queues, and lines that say so."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from dlsched.estimate.sketch import cv, measured_s, merge
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import LatencyTarget, Target
from dlsched.simulation.node.service import Service, quantile_factor
from dlsched.simulation.node.workloads import ServiceLoad

CLOSED = ServiceLoad(work_core_s=0.04, overhead_s=0.01, threads=2.0, noise=0.5)
OPEN = ServiceLoad(work_core_s=0.05, threads=1.0, noise=0.0, arrivals_per_s=10.0)


def service(load: ServiceLoad, target: Target | None = None, seed: int = 3) -> Service:
    return Service(load, target, random.Random(seed))


def run(one: Service, seconds: int, from_s: int = 0) -> LatencySketch:
    """A line a second, all of them together."""
    sketches = []
    for second in range(from_s, from_s + seconds):
        one.advance(second, 1.0)
        sketches += [line.latency for line in one.lines(second + 1.0) if line.latency]
    return merge(*sketches)


@pytest.mark.parametrize(("quota", "latency_s"), [(8.0, 0.03), (1.0, 0.05), (0.25, 0.17)])
def test_alone_its_quota_and_its_threads_set_the_pace(quota: float, latency_s: float) -> None:
    one = service(CLOSED)
    cores = one.wants_cores(quota)
    assert cores == pytest.approx(0.04 / latency_s)
    one.grant(cores, quota)
    assert one.true_latency_s == pytest.approx(latency_s)
    assert one.throttled is (quota < 2.0)
    told = run(one, 60)
    assert told.count == pytest.approx(60 / latency_s, abs=1)
    assert told.mean_s == pytest.approx(latency_s, rel=0.03)
    assert one.usage_core_s == pytest.approx(60 * cores)


def test_with_half_of_what_it_wants_it_answers_half_as_often() -> None:
    one = service(CLOSED)
    one.grant(one.wants_cores(8.0) / 2, 8.0)
    assert one.true_latency_s == pytest.approx(0.06)
    assert not one.throttled


def test_the_works_are_log_normal_with_the_mean_and_deviation_asked_for() -> None:
    one = service(replace(CLOSED, overhead_s=0.0))
    one.grant(one.wants_cores(1.0), 1.0)
    told = run(one, 600)
    assert cv(told) == pytest.approx(0.5, rel=0.05)
    p95 = measured_s(told, 0.95)
    assert p95 == pytest.approx(0.04 * quantile_factor(0.5, 0.95), rel=0.05)
    sigma = math.sqrt(math.log(1.25))
    exact = math.exp(1.645 * sigma - sigma**2 / 2)
    assert quantile_factor(0.5, 0.95) == pytest.approx(exact, rel=0.02)


def test_true_time_at_the_target_is_counted_exactly() -> None:
    one = service(CLOSED, LatencyTarget(0.05))
    one.grant(one.wants_cores(1.0), 1.0)
    one.advance(0.0, 2.5)
    one.grant(one.wants_cores(0.25), 0.25)
    one.advance(2.5, 1.0)
    one.grant(one.wants_cores(2.0), 2.0)
    one.advance(3.5, 0.5)
    assert one.within_s == 2.5
    assert one.met_s == 3.0


def test_a_tail_target_is_held_against_the_tail() -> None:
    slow = quantile_factor(0.5, 0.95)
    one = service(CLOSED, LatencyTarget(0.01 + 0.04 * slow, 0.95))
    one.grant(one.wants_cores(1.0), 1.0)
    assert one.true_latency_s == pytest.approx(0.01 + 0.04 * slow)


def test_lines_come_as_seldom_as_asked_and_tell_of_all_between() -> None:
    often, rare = (service(ServiceLoad(0.01, report_s=report_s)) for report_s in (1.0, 5.0))
    for one in (often, rare):
        one.grant(1.0, math.inf)
    assert run(rare, 21).count == run(often, 21).count > 0
    lines = 0
    for second in range(21, 41):
        rare.advance(second, 1.0)
        lines += len(rare.lines(second + 1.0))
    assert lines == 4


def test_a_request_of_many_seconds_shows_as_unanswered() -> None:
    one = service(replace(CLOSED, noise=0.0))
    one.grant(0.01, 8.0)  # 4 s a request
    one.advance(0.0, 3.0)
    (line,) = one.lines(3.0)
    assert line.latency is None
    assert (line.in_flight, line.oldest_s) == (1, pytest.approx(3.0))
    one.advance(3.0, 1.0)
    (line,) = one.lines(4.0)
    assert line.latency is not None and line.latency.mean_s == pytest.approx(4.0)


# ------------------------------------------------------------------ open loop


def test_an_idle_queue_uses_what_its_arrivals_need() -> None:
    one = service(OPEN)
    assert one.wants_cores(8.0) == pytest.approx(0.5)
    one.grant(0.5, 8.0)
    # Pollaczek and Khinchine at half load, no deviation: half a service time more.
    assert one.true_latency_s == pytest.approx(0.05 + 0.025)
    told = run(one, 300)
    assert told.count == pytest.approx(3000, rel=0.06)
    assert told.mean_s == pytest.approx(0.075, rel=0.15)


def test_an_overload_queues_and_drains() -> None:
    one = service(OPEN)
    one.grant(0.25, 0.25)  # answers 5 of 10 a second
    run(one, 20)
    assert one.changes_by_itself
    assert one.true_latency_s > 10.0
    wants = one.wants_cores(8.0)
    assert wants == pytest.approx(1.0)
    one.grant(wants, 8.0)
    assert not one.changes_by_itself
    run(one, 30, from_s=20)
    assert one.true_latency_s < 1.0


def test_a_tail_in_the_queue_is_above_the_mean() -> None:
    mean, tail = service(OPEN), service(OPEN, LatencyTarget(0.2, 0.95))
    for one in (mean, tail):
        one.grant(one.wants_cores(8.0), 8.0)
    # Half wait not at all, the others exponentially, 50 ms in the mean.
    assert tail.true_latency_s == pytest.approx(0.05 + 0.05 * math.log(0.5 / 0.05), rel=0.05)
    assert mean.true_latency_s < tail.true_latency_s


def test_a_shift_changes_work_and_arrivals() -> None:
    one = service(OPEN)
    one.shift(work=0.5, arrivals=3.0)
    assert one.wants_cores(8.0) == pytest.approx(0.75)

"""Requests that are played one by one: they queue as in theory, under quotas as in the kernel."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from dlsched.control.decider import NamedPolicy
from dlsched.model.facts import NodeFact
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget
from dlsched.policies.registry import load
from dlsched.simulation.node.loops import Loop, RequestStream, RequestWork
from dlsched.simulation.node.played import PERIOD_S, PlayedService
from dlsched.simulation.node.workloads import ServiceLoad, Shift, SimulatedJob, Trace
from dlsched.simulation.node.world import Computation
from dlsched.simulation.run import simulate
from tests.lanes import but_the_first_long

POISSON = Loop("poisson", 30.0)


def job(name: str, load: ServiceLoad, ceiling_cores: float | None = None, **more: object):
    bounds = Bounds(0.0, ceiling_cores)
    spec = JobSpec(name, ContainerSpec("model"), target=LatencyTarget(0.5), bounds=bounds)
    return SimulatedJob(spec, load, **more)  # type: ignore[arg-type]


def play(
    *jobs: SimulatedJob,
    duration_s: float = 200.0,
    policy: str = "none",
    seed: int = 1,
    full_speed: float = 1.0,
):
    found: dict[str, Computation] = {}
    trace = Trace(NodeFact(2.0, 1 << 34), tuple(jobs), duration_s, full_speed=full_speed)
    named = NamedPolicy(policy, load(policy))
    simulate(trace, named, seed, inspect=lambda _, loads: found.update(loads))
    services = [found[one.name] for one in jobs]
    assert all(isinstance(one, PlayedService) for one in services)
    return services


@pytest.mark.parametrize("noise", but_the_first_long([1.0, 0.0001]))
@pytest.mark.parametrize("load_ratio", but_the_first_long([0.3, 0.7]))
def test_a_queue_waits_as_pollaczek_and_khinchine_say(load_ratio: float, noise: float) -> None:
    work_core_s = 0.01
    loop = Loop("poisson", load_ratio / work_core_s)
    (one,) = play(job("a", ServiceLoad(work_core_s, noise=noise, loop=loop)), duration_s=400.0)
    wait_s = load_ratio * work_core_s * (1.0 + noise * noise) / (2.0 * (1.0 - load_ratio))
    assert statistics.fmean(one.took_s) == pytest.approx(work_core_s + wait_s, rel=0.06)
    assert one.usage_core_s == pytest.approx(load_ratio * 400.0, rel=0.03)


def test_a_camera_never_queues_and_clients_wait_for_their_answers() -> None:
    camera = job("a", ServiceLoad(0.01, noise=0.0001, loop=Loop("periodic", 30.0)))
    clients = job("b", ServiceLoad(0.02, 0.01, noise=0.0001, loop=Loop("closed", clients=1)))
    one, other = play(camera, clients, duration_s=61.0)
    assert max(one.took_s) == pytest.approx(0.01, rel=0.01)
    assert len(one.took_s) == pytest.approx(30 * 60, abs=1)
    assert other.took_s[-1] == pytest.approx(0.03, rel=0.01)
    assert len(other.took_s) == pytest.approx(60 / 0.03, rel=0.01)


def test_what_one_thread_has_to_do_takes_as_long_with_many() -> None:
    loop = Loop("periodic", 5.0)
    wide = ServiceLoad(0.04, threads=2.0, noise=0.0001, loop=loop)
    half, whole = (replace(wide, serial_ratio=ratio) for ratio in (0.5, 1.0))
    for one_load, took_s in ((wide, 0.02), (half, 0.03), (whole, 0.04)):
        (one,) = play(job("a", one_load), duration_s=20.0)
        assert one.took_s[-1] == pytest.approx(took_s, rel=0.01)
        assert one.usage_core_s == pytest.approx(0.04 * len(one.took_s), rel=0.02)


def test_cores_are_slower_while_all_are_busy() -> None:
    load = ServiceLoad(0.01, noise=0.0001, loop=Loop("closed", clients=1))
    alone, both = (
        play(job("a", load), duration_s=20.0, full_speed=0.8),
        play(job("a", load), job("b", load), duration_s=20.0, full_speed=0.8),
    )
    assert alone[0].took_s[-1] == pytest.approx(0.01, rel=0.01)
    assert both[0].took_s[-1] == pytest.approx(0.0125, rel=0.01)


def test_two_runs_play_the_same_requests_whatever_the_policy() -> None:
    jobs = [
        job("a", ServiceLoad(0.02, threads=2.0, loop=POISSON, heavy_ratio=0.1)),
        job("b", ServiceLoad(0.02, loop=Loop("closed", clients=4), workers=4)),
    ]
    plain, own = (play(*jobs, duration_s=60.0, policy=name) for name in ("none", "fair"))
    arrived = [sorted(at for at in one.came_s if at < 40.0) for one in (plain[0], own[0])]
    assert arrived[0] == arrived[1]
    assert list(plain[0].took_s) != list(own[0].took_s)


def test_under_a_quota_a_request_stands_still_until_the_next_period() -> None:
    # Each needs three tenths of a period on one core, and a period has two.
    load = ServiceLoad(0.03, noise=0.0001, loop=Loop("periodic", 1.0))
    (one,) = play(job("a", load, 0.2), duration_s=30.0)
    assert min(one.took_s) > 0.03 + 0.01
    assert max(one.took_s) <= 0.01 + PERIOD_S + 1e-6
    (busy,) = play(job("a", ServiceLoad(0.03, loop=Loop("closed")), 0.2), duration_s=30.0)
    assert busy.usage_core_s == pytest.approx(0.2 * 29.0, rel=0.02)


def test_requests_that_come_before_its_process_are_lost() -> None:
    (one,) = play(job("a", ServiceLoad(0.01, loop=POISSON), start_up_s=20.0), duration_s=40.0)
    assert min(one.came_s) >= 20.0
    assert len(one.came_s) == pytest.approx(600, rel=0.15)


def test_a_shift_changes_rate_and_work() -> None:
    load = ServiceLoad(0.01, noise=0.0001, loop=Loop("periodic", 10.0))
    (one,) = play(job("a", load, shifts=(Shift(20.0, work=2.0, arrivals=2.0),)), duration_s=40.0)
    late = [took for came, took in zip(one.came_s, one.took_s, strict=True) if came > 21.0]
    assert len(late) == pytest.approx(19 * 20, abs=25)
    assert statistics.fmean(late) == pytest.approx(0.02, rel=0.01)


def arrivals(loop: Loop, until_s: float = 600.0) -> list[float]:
    made, times = RequestStream(loop, RequestWork(0.01), "seed"), [0.0]
    while times[-1] < until_s:
        times.append(made.next_s())
    return times[1:-1]


def test_bursts_and_waves_come_when_they_should() -> None:
    bursty = arrivals(Loop("poisson", 20.0, burst_factor=3.0))
    inside = [at for at in bursty if at % 60.0 < 5.0]
    assert len(inside) / 50.0 == pytest.approx(60.0, rel=0.06)
    assert (len(bursty) - len(inside)) / 550.0 == pytest.approx(20.0, rel=0.06)
    day = arrivals(Loop("periodic", 20.0, wave_ratio=0.5, wave_s=600.0))
    assert len([at for at in day if at < 300.0]) / 300.0 == pytest.approx(26.4, rel=0.02)
    assert len(day) == pytest.approx(12_000, abs=20)


def test_heavy_requests_keep_the_mean_and_have_a_tail() -> None:
    made = RequestStream(POISSON, RequestWork(0.01, 0.2, 0.1), "seed")
    works = sorted(made.core_s() for _ in range(20_000))
    assert statistics.fmean(works) == pytest.approx(0.01, rel=0.03)
    assert works[19_000] / statistics.fmean(works) == pytest.approx(5.3, rel=0.05)


def test_reports_tell_what_was_answered_and_come_as_seldom_as_asked() -> None:
    one = PlayedService(ServiceLoad(0.01, loop=POISSON, report_s=5.0), None, "seed")
    one.begin(0.0)
    now_s, lines = 0.0, []
    while now_s < 60.0:
        one.grant(one.wants_cores(math.inf), math.inf)
        step_s = min(one.ends_in_s(), 0.5)
        one.advance(now_s, step_s)
        now_s += step_s
        one.happen(now_s)
        lines += one.lines(now_s)
    told = [line.latency for line in lines if line.latency is not None]
    assert 11 <= len(lines) <= 13
    assert sum(one.count for one in told) == pytest.approx(len(one.took_s), abs=200)
    mean_s = sum(one.sum_s for one in told) / sum(one.count for one in told)
    assert mean_s == pytest.approx(statistics.fmean(one.took_s), rel=0.05)

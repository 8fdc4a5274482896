"""Requests that are played one by one: they queue as in theory, under quotas as in the kernel."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from dlsched.control.guards import GuardOptions
from dlsched.model.facts import NodeFact, Report
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget
from dlsched.simulation.node.loops import Loop, RequestStream, RequestWork
from dlsched.simulation.node.played import PERIOD_S, PlayedService
from dlsched.simulation.node.workloads import (
    Fault,
    ReportNoise,
    ServiceLoad,
    Shift,
    SimulatedJob,
    Trace,
)
from dlsched.simulation.node.world import Computation, Process, World
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
    burst_ratio: float = 0.0,
    cores: float = 2.0,
    **more: object,
):
    found: dict[str, Computation] = {}
    trace = Trace(NodeFact(cores, 1 << 34), tuple(jobs), duration_s, **more)  # type: ignore[arg-type]
    guards = GuardOptions(burst_ratio=burst_ratio)
    simulate(trace, policy, seed, guards=guards, inspect=lambda _, loads: found.update(loads))
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


def test_with_a_burst_it_uses_what_it_saved_in_other_periods() -> None:
    load = ServiceLoad(0.03, noise=0.0001, loop=Loop("periodic", 1.0))
    (one,) = play(job("a", load, 0.2), duration_s=30.0, burst_ratio=0.6, cpu_burst=True)
    assert list(one.took_s)[1:] == pytest.approx([0.03] * 28, rel=0.01)
    busy = ServiceLoad(0.03, loop=Loop("closed"))
    (busy,) = play(job("a", busy, 0.2), duration_s=30.0, burst_ratio=0.6, cpu_burst=True)
    assert busy.usage_core_s == pytest.approx(0.2 * 29.0, rel=0.02)


def chain(callee: ServiceLoad, **more: object):
    caller = ServiceLoad(0.02, noise=0.0001, loop=Loop("periodic", 5.0), calls="b")
    return play(job("a", caller), job("b", callee, **more), duration_s=21.0)


def test_a_call_is_a_part_of_the_latency_of_the_request_that_makes_it() -> None:
    one, other = chain(ServiceLoad(0.05, noise=0.0001, loop=Loop("called")))
    assert list(one.took_s) == pytest.approx([0.07] * len(one.took_s), rel=0.01)
    assert list(other.took_s) == pytest.approx([0.05] * len(one.took_s), rel=0.01)
    assert one.usage_core_s == pytest.approx(0.02 * 100, rel=0.03)


def test_a_called_service_has_a_queue_and_clients_of_its_own() -> None:
    one, other = chain(ServiceLoad(0.05, noise=0.0001, loop=Loop("periodic", 5.0)))
    assert len(other.took_s) == pytest.approx(2 * len(one.took_s), abs=2)
    assert max(one.took_s) > 0.08


def test_a_call_that_nobody_answers_ends_at_once_and_one_that_dies_with_its_server_too() -> None:
    dead = ServiceLoad(0.05, noise=0.0001, loop=Loop("called"))
    late, _ = chain(dead, start_up_s=11.0)
    assert min(late.took_s) == pytest.approx(0.02, rel=0.01)
    assert max(late.took_s) == pytest.approx(0.07, rel=0.01)
    crashed, _ = chain(replace(dead, work_core_s=3.0), faults=(Fault("crash", 5.0),))
    assert min(crashed.took_s) < 3.0
    assert len(crashed.took_s) > 20


def test_locks_make_two_cores_the_best_of_all() -> None:
    clients = Loop("closed", clients=8)
    answered = {}
    for workers in (1, 2, 4, 8):
        load = ServiceLoad(0.01, loop=clients, workers=workers, peak_cores=2.0)
        (one,) = play(job("a", load), duration_s=20.0, cores=8.0)
        answered[workers] = len(one.took_s)
    assert answered[1] == pytest.approx(answered[4], rel=0.02)
    assert answered[2] == pytest.approx(4 / 3 * answered[1], rel=0.02)
    assert answered[8] == pytest.approx(8 / 15 * answered[1], rel=0.03)


def test_threads_that_spin_do_less_once_they_have_fewer_cores_than_they_are() -> None:
    clients = Loop("closed", clients=1)
    honest = ServiceLoad(0.02, noise=0.0, threads=2.0, loop=clients)
    spins = replace(honest, spin_ratio=0.4)

    def answers(load: ServiceLoad, ceiling_cores: float | None = None, beside: int = 0) -> int:
        busy = [job(f"busy-{index}", honest) for index in range(beside)]
        one, *_ = play(job("a", load, ceiling_cores), *busy, duration_s=20.0)
        return len(one.took_s)

    assert answers(spins) == answers(honest), "each thread has a core"
    for more in ({"ceiling_cores": 1.0}, {"beside": 1}):
        assert answers(spins, **more) == pytest.approx(0.4 * answers(honest, **more), rel=0.1)
    nearly = {"ceiling_cores": 1.75}
    assert answers(spins, **nearly) == pytest.approx(0.7 * answers(honest, **nearly), rel=0.1)


def test_a_batch_comes_at_one_moment_besides_the_others() -> None:
    loop = Loop("periodic", 1.0, batch=20, batch_at_s=5.5, batch_every_s=10.0)
    (one,) = play(job("a", ServiceLoad(0.001, loop=loop)), duration_s=30.0)
    assert [list(one.came_s).count(pytest.approx(at)) for at in (5.5, 15.5, 25.5)] == [20] * 3
    assert len(one.came_s) == pytest.approx(60 + 29, abs=1)
    assert sum(one.asked_core_s) == pytest.approx(one.usage_core_s, rel=0.05)


def test_pieces_of_time_do_not_matter() -> None:
    load = ServiceLoad(0.02, loop=POISSON, workers=4)
    jobs = [job(name, load) for name in "abc"]
    once, often = play(*jobs, duration_s=30.0), play(*jobs, duration_s=30.0, cycle_s=0.07)
    for one, other in zip(once, often, strict=True):
        assert list(one.took_s) == pytest.approx(list(other.took_s), abs=1e-6)
        assert one.usage_core_s == pytest.approx(other.usage_core_s, abs=1e-6)


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


def test_bursts_come_when_they_should() -> None:
    bursty = arrivals(Loop("poisson", 20.0, burst_factor=3.0))
    inside = [at for at in bursty if at % 60.0 < 5.0]
    assert len(inside) / 50.0 == pytest.approx(60.0, rel=0.06)
    assert (len(bursty) - len(inside)) / 550.0 == pytest.approx(20.0, rel=0.06)


def test_heavy_requests_keep_the_mean_and_have_a_tail() -> None:
    made = RequestStream(POISSON, RequestWork(0.01, 0.2, 0.1), "seed")
    works = sorted(made.core_s() for _ in range(20_000))
    assert statistics.fmean(works) == pytest.approx(0.01, rel=0.03)
    assert works[19_000] / statistics.fmean(works) == pytest.approx(5.3, rel=0.05)


def test_reports_are_lost_late_and_false() -> None:
    def lines_of(noise: ReportNoise | None, report_s: float = 1.0) -> list[Report]:
        load = ServiceLoad(0.01, noise=0.0001, loop=POISSON, report_s=report_s, report_noise=noise)
        one, lines = PlayedService(load, None, "seed"), []
        world = World(1.0)
        world.begin(Process("a", one, lambda: None))
        for now_s in range(1, 301):
            world.advance(float(now_s))
            lines += one.lines(float(now_s))
        return lines

    assert lines_of(None, math.inf) == []
    true = lines_of(None)
    lost = lines_of(ReportNoise(lost_ratio=0.1))
    assert len(lost) == pytest.approx(270, abs=20)
    late = lines_of(ReportNoise(late_s=5.0))
    assert late == [replace(line, received_s=line.received_s + 5.0) for line in true[:-5]]
    false = lines_of(ReportNoise(outlier_ratio=0.01))
    counts = [(one.count, one.sum_s) for line in false if (one := line.latency) is not None]
    mean_s = sum(one.latency.sum_s for one in true if one.latency) / sum(n for n, _ in counts)
    assert sum(s for _, s in counts) / sum(n for n, _ in counts) == pytest.approx(
        2 * mean_s, rel=0.2
    )


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

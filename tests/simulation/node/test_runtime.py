"""The Runtime port over the simulated node: what an agent does, and what it is told."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlsched.model.actions import Remove, Resize, Start
from dlsched.model.facts import ContainerFact, ContainerState, NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget, Limits, Restart, Stop
from dlsched.simulation.node import SimulatedRuntime
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.workloads import (
    Fault,
    Load,
    Pause,
    ServiceLoad,
    SimulatedJob,
    Trace,
    TrainingLoad,
)

SERVICE = ServiceLoad(work_core_s=0.05, threads=1.0, noise=0.0)
TRAINING = TrainingLoad(
    steps=100,
    work_core_s=0.2,
    evaluate_every=10,
    curve=Curve(0.0, 1.0, 20, "exponential"),
    checkpoint_every=10,
)


def job(load: Load = SERVICE, restart: str = "no", **changes: object) -> SimulatedJob:
    spec = JobSpec(
        "one",
        ContainerSpec(image="simulated", restart=Restart(restart)),  # type: ignore[arg-type]
        target=LatencyTarget(0.1) if isinstance(load, ServiceLoad) else None,
        digest="d",
        container_digest="c",
    )
    return replace(SimulatedJob(spec, load), **changes)  # type: ignore[arg-type]


def runtime(*jobs: SimulatedJob, cores: float = 2.0) -> SimulatedRuntime:
    return SimulatedRuntime(Trace(NodeFact(cores, 1 << 30), jobs, duration_s=3600.0))


def started(one: SimulatedJob, limits: Limits | None = None) -> SimulatedRuntime:
    made = runtime(one)
    outcome = made.apply(Start(one.spec, limits or Limits(), 1024, "one.yaml"), 0.0)
    assert outcome.status == "begun"
    return made


def fact(made: SimulatedRuntime, now_s: float) -> ContainerFact:
    (found,) = made.observe(now_s).containers
    return found


def test_a_start_shows_as_begun_until_its_start_up_time_is_over() -> None:
    made = started(job(start_up_s=1.5))
    seen = made.observe(1.0)
    assert not seen.containers
    assert [(one.job, one.stage, one.digest) for one in seen.begun] == [("one", "starting", "d")]
    one = fact(made, 4.0)
    assert not made.observe(4.0).begun
    assert (one.state, one.started_at_s, one.starts) == (ContainerState.RUNNING, 1.5, 1)
    assert (one.digest, one.container_digest, one.source) == ("d", "c", "one.yaml")
    assert one.usage_core_s == pytest.approx(2.5)


def test_a_resize_holds_from_that_moment_in_the_engines_grain() -> None:
    made = started(job())
    one = fact(made, 3.0)
    action = Resize("one", one.container_id, one.actual, Limits(0.25004), 512, "why")
    assert made.apply(action, 3.0).status == "done"
    one = fact(made, 7.0)
    assert (one.actual, one.cpu_shares) == (Limits(0.25), 512)
    assert one.usage_core_s == pytest.approx(2.0 + 4 * 0.25)
    assert (one.periods, one.throttled_periods) == (60, 40)


def test_what_is_asked_of_another_container_fails_or_is_done_already() -> None:
    made = started(job())
    made.observe(2.0)
    resize = Resize("one", "another", Limits(), Limits(1.0), 1024, "")
    assert made.apply(resize, 2.0).status == "failed"
    assert made.apply(Remove("two", "x", Stop(), None, ""), 2.0).status == "done"
    assert made.apply(Start(job().spec, Limits(), 1024), 2.0).status == "done"
    assert fact(made, 2.0).actual == Limits()


def test_a_removed_container_is_gone_and_one_made_again_counts_anew() -> None:
    made = started(job())
    one = fact(made, 3.0)
    assert made.apply(Remove("one", one.container_id, Stop(), None, ""), 3.0).status == "done"
    assert not made.observe(4.0).containers
    made.apply(Start(job().spec, Limits(0.5), 1024), 4.0)
    again = fact(made, 7.0)
    assert again.container_id != one.container_id
    assert again.usage_core_s == pytest.approx(1.0)


def test_a_removal_during_the_start_up_ends_it() -> None:
    made = started(job())
    made.apply(Remove("one", "000000000001", Stop(), None, ""), 0.5)
    assert not made.observe(5.0).containers


def test_a_training_exits_with_0_at_the_exact_time_and_its_last_lines_stay_readable() -> None:
    made = started(job(TRAINING))
    one = fact(made, 500.0)
    assert (one.state, one.exit_code) == (ContainerState.EXITED, 0)
    assert made.loads["one"].completed_s == pytest.approx(21.0)  # type: ignore[union-attr]
    assert one.usage_core_s == pytest.approx(20.0)
    last = one.reports[-1].sample
    assert last is not None and last.step == 100
    assert not made.unfinished()
    assert not fact(made, 501.0).reports


# ------------------------------------------------------------------ faults


def test_a_crash_ends_it_with_code_1() -> None:
    made = started(job(TRAINING, faults=(Fault("crash", 5.0),)))
    one = fact(made, 30.0)
    assert (one.state, one.exit_code) == (ContainerState.EXITED, 1)
    assert one.usage_core_s == pytest.approx(4.0)


def test_after_a_crash_docker_restarts_it_where_its_policy_says_so() -> None:
    made = started(job(TRAINING, "on-failure", faults=(Fault("crash", 5.0),)))
    assert fact(made, 5.5).state is ContainerState.RESTARTING
    one = fact(made, 7.0)
    assert (one.state, one.starts, one.started_at_s) == (ContainerState.RUNNING, 2, 6.0)
    assert one.usage_core_s == pytest.approx(1.0)
    # 20 of 100 steps were saved by then.
    made.observe(60.0)
    assert made.loads["one"].completed_s == pytest.approx(6.0 + 16.0)  # type: ignore[union-attr]


def test_a_silent_job_goes_on_unseen() -> None:
    made = started(job(faults=(Fault("silent", 3.0, 2.0),)))
    seen = {second: fact(made, float(second)).reports for second in range(1, 8)}
    assert {second for second, lines in seen.items() if lines} == {1, 2, 5, 6, 7}
    assert fact(made, 7.0).usage_core_s == pytest.approx(6.0)


@pytest.mark.parametrize("load", [SERVICE, TRAINING], ids=["service", "training"])
def test_a_lying_job_reports_its_truth_times_a_factor(load: Load) -> None:
    honest, liar = started(job(load)), started(job(load, faults=(Fault("lying", 0.0, None, 0.5),)))
    for second in (1.0, 2.0, 3.0, 4.0):
        true, told = fact(honest, second).reports, fact(liar, second).reports
        for one, other in zip(true, told, strict=True):
            if one.latency is not None and other.latency is not None:
                assert other.latency.sum_s == pytest.approx(one.latency.sum_s / 2)
                moved = one.latency.buckets[0][0] - other.latency.buckets[0][0]
                assert moved == pytest.approx(math.log(2) / math.log(1.01 / 0.99), abs=1)
            if one.sample is not None and other.sample is not None:
                assert other.sample.metrics[0][1] == pytest.approx(one.sample.metrics[0][1] / 2)


def test_one_seed_gives_each_job_its_own_draws_whoever_else_is_there() -> None:
    noisy = job(replace(SERVICE, noise=0.5))
    other = replace(noisy, spec=replace(noisy.spec, name="another"))

    def told(*jobs: SimulatedJob) -> object:
        made = runtime(*jobs, cores=8.0)
        for one in jobs:
            made.apply(Start(one.spec, Limits(), 1024), 0.0)
        return [one.reports for one in made.observe(9.0).containers if one.job == "one"]

    assert told(noisy) == told(other, noisy) == told(noisy, other)


def test_a_training_computes_less_in_its_pauses() -> None:
    pauses = (Pause(10.0, 5.0, first_s=3.0), Pause(100.0, 1.0, threads=0.5, first_s=20.0))
    load = replace(TRAINING, steps=10**6, work_core_s=0.001, pauses=pauses)
    made = started(job(load, start_up_s=0.0), Limits())
    used = [fact(made, now_s).usage_core_s for now_s in (3.0, 8.0, 13.0, 18.0, 20.0, 21.0, 23.0)]
    assert used == pytest.approx([3.0, 3.0, 8.0, 8.0, 10.0, 10.5, 12.5])


def test_a_burst_is_known_where_the_kernel_has_it() -> None:
    made = started(job())
    made.observe(2.0)
    container_id = fact(made, 2.0).container_id
    resize = Resize("one", container_id, Limits(), Limits(0.5), 1024, "", burst_cores=0.15)
    made.apply(resize, 2.0)
    assert fact(made, 3.0).burst_cores is None
    trace = Trace(NodeFact(2.0, 1 << 30), (job(),), 3600.0, cpu_burst=True)
    made = SimulatedRuntime(trace)
    made.apply(Start(job().spec, Limits(), 1024, "one.yaml"), 0.0)
    assert fact(made, 2.0).burst_cores == 0.0
    made.apply(replace(resize, container_id=fact(made, 2.0).container_id), 2.0)
    assert fact(made, 3.0).burst_cores == 0.15


WIDE = replace(TRAINING, threads=2.0)  # 100 steps of 0.2 core-seconds, a line every 10


def report_times_s(seen: ContainerFact) -> list[float]:
    return [line.received_s for line in seen.reports]


@pytest.mark.parametrize(("quota", "done_s"), [(None, 3.0), (2.0, 3.0), (0.5, 5.0)])
def test_it_runs_on_one_thread_under_the_quota_and_the_steps_follow_at_once(
    quota: float | None, done_s: float
) -> None:
    made = started(job(WIDE, start_up_s=1.0, start_up_work_core_s=2.0), Limits(quota))
    cores = 2.0 if quota is None else quota
    assert fact(made, done_s).usage_core_s == pytest.approx(2.0)
    seen = fact(made, done_s + 3.0)
    assert seen.usage_core_s == pytest.approx(2.0 + 3.0 * cores)
    every_s = 10 * 0.2 / cores
    times = [done_s + every_s * number for number in range(1, int(3.0 / every_s) + 1)]
    if every_s >= 1.0:  # the reporter's own interval does not thin them
        assert report_times_s(seen) == pytest.approx(times)


def test_throttled_is_who_meets_the_quota_before_its_one_thread() -> None:
    for quota, throttled in ((0.5, 10), (1.5, 0)):
        made = started(job(WIDE, start_up_s=1.0, start_up_work_core_s=5.0), Limits(quota))
        assert fact(made, 2.0).throttled_periods == throttled


def test_a_service_answers_nothing_until_it_is_done() -> None:
    made = started(job(start_up_s=1.0, start_up_work_core_s=2.0))
    assert not fact(made, 2.9).reports
    (line,) = fact(made, 4.0).reports
    assert line.latency is not None and line.latency.count == pytest.approx(1.0 / 0.05, abs=1)


def test_each_start_begins_anew() -> None:
    one = job(
        WIDE,
        restart="on-failure",
        start_up_s=1.0,
        start_up_work_core_s=2.0,
        faults=(Fault("crash", 2.0), Fault("crash", 7.0)),
    )
    made = started(one)
    assert fact(made, 2.5).state is ContainerState.RESTARTING  # in the midst of its start-up
    seen = fact(made, 7.0 - 1e-6)  # from 3 s again, steps from 5 s
    assert seen.usage_core_s == pytest.approx(2.0 + 2 * 2.0, abs=1e-4)
    assert report_times_s(seen) == pytest.approx([6.0])
    made.observe(7.0)
    assert fact(made, 10.0).usage_core_s == pytest.approx(2.0)

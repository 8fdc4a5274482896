"""What a process computes before its first step: under its limits, exactly, at each start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.spec import Limits
from dlsched.simulation.node.workloads import Fault
from tests.simulation.node.test_runtime import TRAINING, fact, job, started

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

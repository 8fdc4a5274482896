"""Records back to traces: what went in comes out, and what a record does not show is said."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dlsched.model.cycle import CycleReport
from dlsched.model.spec import (
    AccuracyTarget,
    Bounds,
    ContainerSpec,
    LatencyTarget,
    Restart,
    Target,
)
from dlsched.model.state import JobView
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.workloads import (
    Fault,
    Load,
    ServiceLoad,
    Shift,
    SimulatedJob,
    Trace,
    TrainingLoad,
)
from dlsched.simulation.run import simulate
from dlsched.simulation.trace import (
    NothingRecorded,
    Recorded,
    observed,
    parse_trace,
    record,
    render_trace,
)
from dlsched.simulation.trace.recording import Record, trace_of
from tests.simulation import worlds
from tests.simulation.worlds import asked, run, seen

ACCURACY = AccuracyTarget("accuracy", deliver=0.5, finish=0.8)
TRAINING = TrainingLoad(
    steps=400,
    work_core_s=0.2,
    evaluate_every=10,
    curve=Curve(0.1, 0.95, 120, "exponential"),
    threads=2.0,
    checkpoint_every=50,
)
SERVICE = ServiceLoad(work_core_s=0.03, overhead_s=0.005, threads=2.0, noise=0.3)


def job(name: str, load: Load, target: Target | None = None, **changes: Any) -> SimulatedJob:
    if target is None:
        target = ACCURACY if isinstance(load, TrainingLoad) else LatencyTarget(0.04)
    container = ContainerSpec("simulated", restart=Restart("on-failure"), memory_bytes=1 << 28)
    one = worlds.job(name, load, target, **changes)
    return replace(one, spec=replace(one.spec, container=container))


day = partial(worlds.day, duration_s=200.0)


def recorded(trace: Trace, policy: str = "none") -> Recorded:
    found = record(run(trace, policy), "again")
    assert parse_trace(render_trace(found.trace), "yaml") == found.trace
    return found


def only(found: Recorded) -> SimulatedJob:
    (one,) = found.trace.jobs
    return one


# ------------------------------------------------------------------ one job's numbers


@pytest.mark.parametrize("policy", ["none", "flowcon"])
def test_a_training_comes_back_with_its_work_threads_steps_and_curve(policy: str) -> None:
    found = only(recorded(day(job("vae", TRAINING, arrives_s=12.0)), policy))
    load = found.load
    assert load.work_core_s == pytest.approx(0.2, rel=0.01)
    assert load.threads == 2.0
    assert load.steps == pytest.approx(400, abs=2)
    assert (load.evaluate_every, load.noise) == (10, 0.0)
    for step in (10, 55, 120, 300, 400):
        assert load.curve.value(step) == pytest.approx(TRAINING.curve.value(step), abs=0.005)
    assert (found.arrives_s, found.leaves_s, found.start_up_s) == (12.0, None, 1.0)
    assert found.start_up_work_core_s == pytest.approx(0.0, abs=0.2)


@pytest.mark.parametrize("ceiling", [0.4, 1.5])
def test_the_work_before_the_first_step_is_told_from_that_of_the_steps(ceiling: float) -> None:
    slow = job("lstm", TRAINING, start_up_s=2.0, start_up_work_core_s=6.0)
    slow = replace(slow, spec=replace(slow.spec, bounds=Bounds(0.01, ceiling)))
    found = recorded(day(slow, duration_s=400.0))
    one = only(found)
    assert one.start_up_work_core_s == pytest.approx(6.0, abs=0.5)
    assert one.load.work_core_s == pytest.approx(0.2, rel=0.01)
    assert one.start_up_s == pytest.approx(2.0, abs=1.0)
    assert one.load.threads == math.ceil(ceiling)
    words = (
        f"lstm: a limit always held the job back: it can use {math.ceil(ceiling)} cores, or more"
    )
    assert words in found.remarks


@pytest.mark.parametrize("policy", ["none", "dqoes"])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_service_comes_back_with_its_work_and_noise(policy: str, noise: float) -> None:
    one = job("detector", replace(SERVICE, noise=noise), LatencyTarget(0.05))
    load = only(recorded(day(one), policy)).load
    assert load.work_core_s == pytest.approx(0.03, rel=0.03)
    assert load.noise == pytest.approx(noise, abs=0.03)
    assert load.arrivals_per_s is None


def test_a_load_that_changes_for_long_is_shifted() -> None:
    shifts = (Shift(150.0, work=2.0), Shift(300.0, work=1.0))
    one = job("detector", SERVICE, shifts=shifts)
    back = only(recorded(day(one, duration_s=450.0)))
    assert [(shift.at_s, shift.work) for shift in back.shifts] == [
        (pytest.approx(150.0, abs=11.0), pytest.approx(2.0, rel=0.05)),
        (pytest.approx(300.0, abs=11.0), pytest.approx(1.0, rel=0.05)),
    ]


def test_a_load_that_does_not_change_is_not_shifted() -> None:
    queue = ServiceLoad(work_core_s=0.02, noise=0.5, arrivals_per_s=3.0)
    assert not only(recorded(day(job("queue", queue), duration_s=900.0))).shifts


def test_what_a_hostile_job_reports_makes_no_wrong_trace() -> None:
    """Steps beyond all bounds, huge values, another thousand metrics a line."""

    def spoilt(view: JobView) -> JobView:
        samples = []
        for one in view.progress.samples:
            chaff = tuple((f"m{one.step}-{number}", 1.0) for number in range(100))
            samples.append(replace(one, metrics=(("accuracy", 1e300), *chaff)))
            samples.append(replace(one, step=10**15))
            samples.append(replace(one, step=-1))
        return replace(view, progress=replace(view.progress, samples=tuple(samples)))

    for target in (ACCURACY, None):
        one = job("vae", TRAINING)
        one = replace(one, spec=replace(one.spec, target=target))
        found = record([seen(report, spoilt) for report in run(day(one))])
        assert parse_trace(render_trace(found.trace), "yaml") == found.trace
        load = only(found).load
        assert load.steps == pytest.approx(400, abs=2)
        assert {value for _, value in load.curve.points} == {1e15}


# ------------------------------------------------------------------ lives


def test_a_job_that_leaves_leaves() -> None:
    leaving = job("detector", SERVICE, arrives_s=20.0, leaves_s=110.0)
    detector, other = recorded(day(leaving, job("other", SERVICE))).trace.jobs
    assert (detector.arrives_s, detector.leaves_s) == (20.0, pytest.approx(110.0, abs=1.0))
    assert (other.arrives_s, other.leaves_s) == (0.0, None)


def test_what_the_file_said_is_kept() -> None:
    one = job("vae", TRAINING)
    spec = replace(one.spec, bounds=Bounds(0.2, 1.5), weight=3.0)
    assert only(recorded(day(replace(one, spec=spec)))).spec == spec


def test_a_crash_is_a_fault_and_the_checkpoint_is_found() -> None:
    back = only(recorded(day(job("vae", TRAINING, faults=(Fault("crash", 20.0),)))))
    (fault,) = back.faults
    assert (fault.kind, fault.at_s) == ("crash", pytest.approx(20.0, abs=1.0))
    load = back.load
    assert load.work_core_s == pytest.approx(0.2, rel=0.01)
    assert load.checkpoint_every is not None
    assert load.steps == pytest.approx(400, abs=2)


def test_of_a_container_that_crashes_all_day_the_first_crashes_are_told() -> None:
    times_s = [2.0 + 0.5 * number for number in range(300)]
    faults = tuple(Fault("crash", time_s) for time_s in times_s)
    one = job("vae", TRAINING, faults=faults, start_up_s=0.0)
    always = replace(one.spec.container, restart=Restart("always"))
    found = recorded(day(replace(one, spec=replace(one.spec, container=always)), cycle_s=0.1))
    assert len(only(found).faults) == 200
    assert any(
        re.fullmatch(r"vae: crashed \d+ times: the first 200 are kept", remark)
        for remark in found.remarks
    )


def test_a_training_that_did_not_end_gets_more_steps_than_its_time_has_room_for() -> None:
    endless = replace(TRAINING, steps=100_000)
    found = recorded(day(job("vae", endless), duration_s=100.0))
    load = only(found).load
    assert load.steps * load.work_core_s / load.threads >= 99.0
    assert found.trace.duration_s == 100.0
    (remark,) = (one for one in found.remarks if "did not end by itself" in one)
    assert re.match(r"vae: did not end by itself: after step \d+ its curve stays", remark)


def test_a_trace_has_room_for_a_slower_policy_and_the_others_leave_with_the_record() -> None:
    found = recorded(day(job("vae", TRAINING), job("detector", SERVICE), duration_s=80.0))
    detector, vae = found.trace.jobs
    assert (found.trace.duration_s, detector.leaves_s, vae.leaves_s) == (120.0, 80.0, None)
    assert any("the record has 80 s, the trace 120 s" in remark for remark in found.remarks)


def test_a_job_that_reported_nothing_is_work_of_others() -> None:
    mute = job("mute", TRAINING, faults=(Fault("silent", 0.0),))
    found = recorded(day(job("detector", SERVICE), mute, duration_s=100.0))
    assert only(found).name == "detector"
    assert sum(one.cores * one.for_s for one in found.trace.host) == pytest.approx(80.0, rel=0.1)
    assert any(remark.startswith("mute: reported no steps") for remark in found.remarks)


def test_a_target_that_changed_is_told_and_the_last_holds() -> None:
    reports = run(day(job("detector", SERVICE)))
    late = [
        report if number < 50 else seen(report, lambda view: asked(view, LatencyTarget(0.07, 0.95)))
        for number, report in enumerate(reports)
    ]
    found = record(late)
    assert only(found).spec.target == LatencyTarget(0.07, 0.95)
    assert any("the target changed during the record" in remark for remark in found.remarks)


def test_a_job_that_comes_again_is_a_job_of_its_own() -> None:
    reports = run(day(job("vae", TRAINING), duration_s=100.0))
    empty = [
        replace(one, snapshot=replace(one.snapshot, jobs=(), now_s=one.snapshot.now_s + 200.0))
        for one in reports[:3]
    ]
    again = [_later(one, 300.0) for one in reports]
    found = record([*reports, *empty, *again])
    assert [one.name for one in found.trace.jobs] == ["vae", "vae-2"]
    assert found.trace.jobs[1].arrives_s == 300.0
    assert "vae-2: vae, which came again or was recreated" in found.remarks
    for one in found.trace.jobs:
        assert one.load.work_core_s == pytest.approx(0.2, rel=0.01)


def _later(report: CycleReport, by_s: float) -> CycleReport:
    """The same cycle, so many seconds later."""

    def later(view: JobView) -> JobView:
        samples = tuple(
            replace(one, received_s=one.received_s + by_s) for one in view.progress.samples
        )
        return replace(
            view,
            progress=replace(view.progress, samples=samples),
            started_at_s=None if view.started_at_s is None else view.started_at_s + by_s,
        )

    return seen(report, later, now_s=report.snapshot.now_s + by_s)


def test_a_job_that_came_hundreds_of_times_is_as_many_jobs() -> None:
    reports = run(day(job("vae", TRAINING), duration_s=100.0))
    some = [*reports[:2], replace(reports[2], snapshot=replace(reports[2].snapshot, jobs=()))]
    lives = [_later(one, 200.0 * life) for life in range(300) for one in some]
    found = record([*reports, *(_later(one, 200.0) for one in lives)])
    assert "vae-300: vae, which came again or was recreated" in found.remarks


def test_one_jobs_senseless_numbers_do_not_spoil_the_others() -> None:
    def spoilt(view: JobView) -> JobView:
        return replace(view, attained_core_s=math.nan) if view.name == "vae" else view

    reports = run(day(job("vae", TRAINING), job("web", SERVICE), duration_s=60.0))
    found = record([seen(report, spoilt) for report in reports])
    assert "web" in [one.name for one in found.trace.jobs]
    assert parse_trace(render_trace(found.trace), "yaml") == found.trace


def test_a_record_that_begins_in_the_midst_begins_its_jobs_anew() -> None:
    reports = run(day(job("vae", TRAINING), duration_s=100.0))
    found = record(reports[15:])
    one = only(found)
    assert one.arrives_s == 0.0
    assert one.load.work_core_s == pytest.approx(0.2, rel=0.01)
    assert one.load.steps == pytest.approx(400, abs=2)
    assert any("ran already when the record begins" in remark for remark in found.remarks)


def test_without_a_cycle_or_a_job_there_is_nothing_to_record() -> None:
    with pytest.raises(NothingRecorded, match="no cycle could be read"):
        record([])
    mute = job("mute", TRAINING, faults=(Fault("silent", 0.0),))
    with pytest.raises(
        NothingRecorded,
        match=r"recorded cycles shows how much work a job did; mute: reported no steps",
    ):
        record(run(day(mute, duration_s=20.0)))


# ------------------------------------------------------------------ whole days


def test_many_jobs_share_a_bound_on_what_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thinned out, the record still gives the same work and the same law."""
    service = job("one", SERVICE)
    trace = day(service, duration_s=900.0)
    monkeypatch.setattr(observed, "WINDOWS_MAX", 40)
    monkeypatch.setattr(observed, "_WINDOWS_LEAST", 20)
    gathered = Record()
    simulate(trace, "none", 1, publish=gathered.take)
    (one,) = gathered.jobs
    assert 20 <= len(one.windows) <= one.windows_max == 40
    assert one.windows[-1].at_s > 800.0
    found = trace_of(gathered).trace.jobs[0].load
    assert found.work_core_s == pytest.approx(SERVICE.work_core_s, rel=0.05)

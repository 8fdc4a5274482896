"""What a cycle adds to the stream: changes, states, targets, alarms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.api.stream_events import EventHistory, point
from dlsched.api.stream_schema import CycleEvents
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.spec import Limits
from dlsched.model.state import JobState
from tests.status_source import P95_50MS, example_report, job

DOWN = Alarm("engine", AlarmKey.ENGINE_DOWN, "engine: no answer for 3 s")


def report(cycle: int, *ratios: float | None, alarms: tuple[Alarm, ...] = ()) -> CycleReport:
    """A cycle with one job for each ratio of latency to target; None: no request."""
    jobs = tuple(
        job(f"job-{number}", latency_s=None if ratio is None else ratio * P95_50MS.seconds)
        for number, ratio in enumerate(ratios)
    )
    example = example_report()
    return replace(
        example,
        snapshot=replace(example.snapshot, cycle=cycle, now_s=1000.0 + cycle, jobs=jobs),
        outcomes=(),
        raised=alarms,
        alarms=tuple(alarm.text for alarm in alarms),
        wall_time=f"at {cycle}",
    )


def kinds(found: CycleEvents | None) -> list[tuple[str, str]]:
    return [] if found is None else [(one.job, one.kind) for one in found.events]


def alarms(found: CycleEvents | None) -> list[tuple[str, str, str, str]]:
    some = () if found is None else found.alarms
    return [(one.kind, one.source, one.key, one.text) for one in some]


def test_a_job_arrives_changes_its_state_and_leaves() -> None:
    history = EventHistory()
    first = report(1, 1.0)
    assert kinds(history.next(first)) == [("job-0", "arrived")]
    assert history.next(report(2, 1.0)) is None, "nothing happened"
    waiting = replace(first.snapshot.jobs[0], state=JobState.STOPPED, reason="by command")
    found = history.next(replace(first, snapshot=replace(first.snapshot, jobs=(waiting,))))
    assert found is not None
    (event,) = found.events
    assert (event.kind, event.before, event.after) == ("state", "running", "stopped")
    assert event.reason == "by command"
    assert kinds(history.next(report(4))) == [("job-0", "left")]


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ((1.0, 1.5, 0.8), ["missed", "met"]),
        ((1.0, 1.09, 0.9), []),  # within the band
        ((1.5, 1.05, 1.2, 1.05), []),  # missed until it is not above the target
        ((1.0, 1.5, None, None, 1.5), ["missed"]),  # silence says nothing
        ((1.0, 1.5, None, 0.9), ["missed", "met"]),
        ((None, 2.0), ["missed"]),
    ],
)
def test_a_target_about_its_bound_does_not_flap(
    ratios: tuple[float | None, ...], told: list[str]
) -> None:
    history = EventHistory()
    history.next(report(0, ratios[0]))
    found = [
        kind
        for at, one in enumerate(ratios[1:], 1)
        for _, kind in kinds(history.next(report(at, one)))
    ]
    assert found == told


def test_a_missed_target_says_by_how_much() -> None:
    history = EventHistory()
    history.next(report(1, 1.0))
    found = history.next(report(2, 2.0))
    assert found is not None
    assert found.events[0].reason == "99.7 ms over 100 requests, target p95 50 ms"
    assert (found.events[0].cycle, found.events[0].wall_time) == (2, "at 2")


def test_an_alarm_is_raised_once_and_cleared_once() -> None:
    history = EventHistory()
    history.next(report(1))
    name = ("engine", "engine-down")
    assert alarms(history.next(report(2, alarms=(DOWN,)))) == [("raised", *name, DOWN.text)]
    later = replace(DOWN, text="engine: no answer for 4 s")
    assert history.next(report(3, alarms=(later,))) is None, "the same alarm, in other words"
    assert alarms(history.next(report(4))) == [("cleared", *name, later.text)]


def test_after_a_restart_only_what_differs_from_the_run_before_is_news() -> None:
    taken = Alarm("b", AlarmKey.NAME_TAKEN, "b: a job file has its name")
    before = replace(report(7, 1.5, 1.0, alarms=(DOWN, taken)), raised=())  # as a journal has it
    history = EventHistory(before)
    found = history.next(report(8, 1.5, 1.5, alarms=(DOWN,)))
    assert kinds(found) == [("job-1", "missed")]
    assert alarms(found) == [("cleared", "", "", taken.text)]
    assert alarms(history.next(report(9, 1.5, 1.5))) == [
        ("cleared", "engine", "engine-down", DOWN.text)
    ]


def test_a_point_has_no_ceilings_of_a_shadow_that_failed() -> None:
    shadow = Shadow("fair", limits={"digits-resnet": Limits(0.8)}, trouble="no longer used: boom")
    assert point(replace(example_report(), shadow=shadow)).shadow is None


def test_a_job_that_does_not_run_holds_no_limit() -> None:
    report = example_report()
    over = [replace(one, state=JobState.FINISHED) for one in report.snapshot.jobs]
    found = point(replace(report, snapshot=replace(report.snapshot, jobs=tuple(over))))
    assert {one.limit_cores for one in found.jobs} == {None}


def test_a_target_is_missed_while_too_many_requests_fail() -> None:
    history = EventHistory()
    history.next(report(0, 0.5))
    fine = report(1, 0.5)
    (view,) = fine.snapshot.jobs
    progress = replace(view.progress, recent=replace(view.progress.recent, errors=150))
    snapshot = replace(fine.snapshot, jobs=(replace(view, progress=progress),))
    (event,) = history.next(replace(fine, snapshot=snapshot)).events
    assert (event.kind, event.reason) == ("missed", "60 % of requests fail, at most 1 % may")
    assert kinds(history.next(report(2, 0.5))) == [("job-0", "met")]

"""A bottleneck is named when confirmed, kept while it holds, and gone with the miss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.ledger.bottleneck import (
    APART_S,
    CHANGED,
    CONFIRMED,
    MET_S,
    NUMBERS_S,
    READINGS,
    UNKNOWN,
    Bottlenecks,
    bottleneck_alarms,
)
from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.estimate.bottleneck import SAMPLES_MIN
from dlsched.estimate.sketch import from_latencies
from dlsched.model.alarms import AlarmKey
from dlsched.model.bottleneck import Bottleneck, Cause, WaitFact
from dlsched.model.facts import NodeFact, Observation, Report, Usage, WireFact
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.state import JobState, JobView, NodeView, Progress
from tests.doubles import job_spec, running

EVERY_S = 2.0
DISK, LOCK, NOTHING = {"in_disk": 6.0}, {"at_lock": 7.0, "threads": 9.0}, {"threads": 9.0}


class Host:
    """A service that is sampled every two seconds."""

    def __init__(self) -> None:
        self.bottlenecks, self.now_s = Bottlenecks(), 0.0
        self.latency_s, self.starts = 0.2, 1
        self.others: dict[str, WireFact] = {}
        self.mean_s = 0.7
        self.queued_ratio = self.queued_s = 0.0

    def sample(self, times: int = 1, **gauges: float) -> Bottleneck | None:
        jobs: tuple[JobView, ...] = ()
        for _ in range(times):
            self.now_s += EVERY_S
            self.queued_s += self.queued_ratio * EVERY_S
            more = {"threads": 10.0, "free": 1.0, **gauges}
            waits = WaitFact(self.now_s, queued_s=self.queued_s, **more)
            facts = {"a": replace(running("a"), name="shop", starts=self.starts, waits=waits)}
            facts |= {name: replace(running(name), name=f"{name}-1") for name in self.others}
            views = [_view("a", self.latency_s, Progress(in_flight=8))]
            views += [
                _view(name, self.mean_s, Progress(wire=wire)) for name, wire in self.others.items()
            ]
            node = NodeView(4.0, 4.0, 8 << 30)
            jobs = self.bottlenecks.named(views, facts, node, self.now_s, 30.0)
        return jobs[0].bottleneck


def _view(name: str, latency_s: float, progress: Progress) -> JobView:
    progress = replace(progress, recent=from_latencies([latency_s] * 20))
    spec = replace(job_spec(name), target=LatencyTarget(0.05))
    return JobView(spec, JobState.RUNNING, progress=progress)


def test_a_first_cause_is_confirmed_before_it_is_named() -> None:
    host = Host()
    assert host.sample(SAMPLES_MIN + CONFIRMED - 2, **DISK) is None
    found = host.sample(**DISK)
    assert found is not None
    assert (found.cause, found.since_s) == (Cause.DISK, host.now_s)


def test_that_none_is_known_is_said_later() -> None:
    host = Host()
    assert host.sample(SAMPLES_MIN + UNKNOWN - 2, **NOTHING) is None
    found = host.sample(**NOTHING)
    assert found is not None
    assert found.cause is Cause.NOT_KNOWN


def test_a_cause_stays_through_others_that_do_not_last() -> None:
    host = Host()
    before = host.sample(2 * READINGS, **DISK)
    assert before is not None
    for _ in range(5):
        assert host.sample(2, **LOCK) is before
        assert host.sample(6, **DISK) is before


def test_a_name_ends_with_the_samples() -> None:
    host = Host()
    assert host.sample(2 * READINGS, **DISK) is not None
    view, node = _view("a", 0.2, Progress(in_flight=8)), NodeView(4.0, 4.0, 8 << 30)
    facts = {"a": replace(running("a"), name="shop", starts=1)}
    for later_s, named in ((APART_S - 1.0, True), (APART_S + 1.0, False)):
        now_s = host.now_s + later_s
        (seen,) = host.bottlenecks.named([view], facts, node, now_s, 30.0)
        assert (seen.bottleneck is not None) is named


def test_a_cause_beside_which_it_waits_for_a_cpu_says_so_for_good() -> None:
    view = _view("a", 0.2, Progress(in_flight=8))
    found = Host().sample(2 * READINGS, **DISK)
    assert not replace(view, bottleneck=found).cpu_helps
    host = Host()
    host.queued_ratio = 1.0
    assert replace(view, bottleneck=host.sample(2 * READINGS, **DISK)).cpu_helps
    host.queued_ratio = 0.0
    assert replace(view, bottleneck=host.sample(2 * READINGS, **DISK)).cpu_helps


def test_another_cause_that_lasts_takes_its_place() -> None:
    host = Host()
    host.sample(2 * READINGS, **DISK)
    found = host.sample(READINGS + CHANGED, **LOCK)
    assert found is not None
    assert found.cause is Cause.LOCK
    assert found.since_s > 2 * READINGS * EVERY_S


def test_its_numbers_are_renewed_now_and_then() -> None:
    host = Host()
    before = host.sample(2 * READINGS, **DISK)
    assert before is not None
    assert host.sample(READINGS, in_disk=5.0) is before
    after = host.sample(int(NUMBERS_S / EVERY_S), in_disk=5.0)
    assert after is not None
    assert (after.cause, after.since_s) == (before.cause, before.since_s)
    assert after.evidence != before.evidence


def test_it_goes_when_the_target_is_met_for_some_time() -> None:
    host = Host()
    before = host.sample(2 * READINGS, **DISK)
    host.latency_s = 0.04
    assert host.sample(int(MET_S / EVERY_S), **DISK) is before
    assert host.sample(**DISK) is None
    host.latency_s = 0.2
    assert host.sample(SAMPLES_MIN - 1, **DISK) is None  # judged from the beginning


def test_another_start_is_judged_from_its_beginning() -> None:
    host = Host()
    assert host.sample(2 * READINGS, **DISK) is not None
    host.starts = 2
    assert host.sample(**DISK) is None


def test_samples_with_a_long_time_between_them_are_not_judged_together() -> None:
    host = Host()
    host.sample(SAMPLES_MIN - 1, **DISK)
    host.latency_s = 0.04
    host.sample(3, **DISK)
    host.now_s += 100.0
    host.latency_s = 0.2
    assert host.sample(SAMPLES_MIN, **DISK) is None


def test_a_slow_service_that_it_calls_is_named() -> None:
    host = Host()
    host.others = {"db": WireFact(callers=(("shop", 10.0), ("another", 90.0)))}
    host.latency_s = 0.8
    found = host.sample(2 * READINGS, **NOTHING)
    assert found is not None
    assert found.cause is Cause.CALLEE
    assert "waited for db, which takes 700 ms" in found.evidence


def test_whom_others_call_and_itself_are_not_named() -> None:
    host = Host()
    host.others = {"db": WireFact(callers=(("another", 90.0),))}
    found = host.sample(2 * READINGS, **NOTHING)
    assert found is not None
    assert found.cause is Cause.NOT_KNOWN


@pytest.mark.parametrize("cause", list(Cause))
def test_an_alarm_for_what_cpu_does_not_mend(cause: Cause) -> None:
    job = replace(
        _view("a", 0.2, Progress()), bottleneck=Bottleneck(cause, "Measured.", "Do.", 1.0)
    )
    alarms = bottleneck_alarms([job, _view("b", 0.2, Progress())])
    if cause in (Cause.CPU, Cause.NOT_KNOWN, Cause.THREADS):
        assert alarms == ()
    else:
        (alarm,) = alarms
        assert (alarm.source, alarm.key) == ("a", AlarmKey.BOTTLENECK)
        assert alarm.text == f"a: Bottleneck: {cause}. Measured. Do."


def test_the_ledger_names_it_in_the_view_and_in_an_alarm() -> None:
    ledger = Ledger(LedgerOptions())
    spec = job_spec("a", target=LatencyTarget(0.05))
    for at in range(20):
        now_s = EVERY_S * at
        report = Report(now_s, latency=from_latencies([0.2] * 40), in_flight=4, oldest_s=0.1)
        waits = WaitFact(now_s, threads=5.0, in_disk=4.0)
        fact = replace(running("a"), reports=(report,), waits=waits, usage_core_s=0.0)
        observed = Observation(
            now_s, engine_ok=True, containers=(fact,), node=NodeFact(4.0, 8 << 30)
        )
        state = ledger.update(observed, Desired(specs={"a": spec}), {})
    (job,) = state.snapshot.jobs
    assert job.bottleneck is not None
    assert job.bottleneck.cause is Cause.DISK
    assert [alarm.key for alarm in state.alarms] == [AlarmKey.BOTTLENECK]


def test_a_training_that_waits_has_a_cause_and_no_alarm() -> None:
    bottlenecks, usage = Bottlenecks(), Usage(window_cores=0.1)
    spec = replace(job_spec("a"), target=AccuracyTarget("accuracy", 0.9, 0.97))
    view, node = JobView(spec, JobState.RUNNING, usage=usage), NodeView(4.0, 4.0, 8 << 30)
    for at in range(READINGS):
        now_s = at * EVERY_S
        facts = {"a": replace(running("a"), waits=WaitFact(now_s, threads=3.0, free=1.0))}
        (found,) = bottlenecks.named([view], facts, node, now_s, 30.0)
    assert found.bottleneck is not None
    assert found.bottleneck.cause is Cause.LOADER
    assert bottleneck_alarms([found]) == ()
    view = replace(view, usage=Usage(window_cores=3.0))
    (found,) = bottlenecks.named([view], facts, node, now_s + MET_S + EVERY_S, 30.0)
    assert found.bottleneck is None

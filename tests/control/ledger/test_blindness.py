"""Who is blind, who is idle, and who merely has nothing to report."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlsched.control.ledger.blindness import IDLE_CORES, Condition, Silence, condition
from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import LatencySketch, LogFact, Sample, Usage
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Target
from dlsched.model.state import Idle, Lacks, Progress
from dlsched.report.buckets import LONGEST_S
from tests.doubles import running

LATENCY = LatencyTarget(0.05)
TRAINING = AccuracyTarget("accuracy", 0.9, 0.97)
WORKS = Silence(cores=1.0)
RESTS = Silence(cores=0.004)


BOUND = " for 50 ms; give them a bound at 50 ms"
MEAN = ", or set a target for the mean"


def seen(
    target: Target | None,
    now_s: float,
    as_of_s: float | None = None,
    silence: Silence = WORKS,
    *,
    has_source: bool = True,
    throttled_ratio: float | None = None,
    **progress: object,
) -> Condition:
    """Of a job that runs since 100 s, with 60 s of patience; its reports are of latencies."""
    silence = silence._replace(latency_s=as_of_s)
    return condition(
        target,
        replace(running("a"), has_source=has_source),
        Progress(as_of_s=as_of_s, **progress),  # type: ignore[arg-type]
        silence,
        Usage(throttled_ratio=throttled_ratio),
        began_s=100.0,
        now_s=now_s,
        after_s=60.0,
    )


def test_who_has_no_target_is_never_blind():
    assert seen(None, 1000.0) == Condition()
    assert seen(None, 1000.0, has_source=False) == Condition()


@pytest.mark.parametrize("target", [LATENCY, TRAINING])
def test_without_a_source_one_is_blind_at_once(target: Target):
    assert seen(target, 100.0, has_source=False).blind == "the job names no source of progress"


@pytest.mark.parametrize(
    ("target", "mute"),
    [
        (LATENCY, "no report in the first 1 min, although the job uses CPU"),
        (TRAINING, "no report in the first 1 min"),
    ],
)
@pytest.mark.parametrize("as_of_s", [None, 50.0], ids=["never told", "told before its start"])
def test_the_first_report_has_its_time(target: Target, mute: str, as_of_s: float | None):
    assert seen(target, 160.0, as_of_s) == Condition()
    assert seen(target, 160.1, as_of_s) == Condition(mute)
    assert seen(target, 160.0, 110.0) == Condition()


@pytest.mark.parametrize(
    ("sketch", "why"),
    [
        (
            LatencySketch(600, 4.2, spans=((0.0, 0.1, 600),)),
            "p95 is between 0 s and 100 ms: the buckets are too coarse" + BOUND,
        ),
        (
            LatencySketch(600, 30.0, spans=((0.025, math.inf, 600),)),
            "p95 is above 25 ms: the buckets are too coarse" + BOUND,
        ),
        (
            LatencySketch(600, 4.2),
            "only the mean is known, not p95: read a histogram with a bound at 50 ms" + MEAN,
        ),
        (LatencySketch(600, 1.2), None),
        (replace(from_latencies([0.01] * 600), missed=7), None),
        (
            replace(from_latencies([0.01] * 600), missed=60),
            "p95 may be on either side of 50 ms: packets at the job's sockets were not read",
        ),
        (LatencySketch(4, 0.1, spans=((0.0, 0.1, 4),)), None),
    ],
    ids=[
        "a bucket",
        "the last bucket",
        "a mean",
        "a mean that bounds it",
        "few missing",
        "many",
        "too few requests",
    ],
)
def test_a_latency_about_its_target_is_unclear(sketch: LatencySketch, why: str | None):
    spans = tuple((low, min(high, LONGEST_S), many) for low, high, many in sketch.spans)
    progress = Progress(as_of_s=110.0, recent=replace(sketch, spans=spans))
    found = condition(
        LatencyTarget(0.05, 0.95),
        running("a"),
        progress,
        Silence(request_s=110.0, latency_s=110.0),
        Usage(),
        began_s=100.0,
        now_s=120.0,
        after_s=60.0,
    )
    assert found == Condition(why)


def test_a_mean_whose_sum_may_be_off_is_unclear_about_its_target():
    asked = Silence(request_s=110.0)
    for sum_s, why in (
        (
            0.55,
            (
                "the mean may be on either side of 50 ms: the metrics page rounds or contradicts "
                "its "
                "own sum"
            ),
        ),
        (0.75, None),
    ):
        recent = LatencySketch(10, sum_s, sum_error_s=0.2)
        assert seen(LATENCY, 120.0, 110.0, asked, recent=recent) == Condition(why)


def test_a_service_is_blind_while_more_than_chance_fails():
    def failing(answers: int, errors: int) -> str | None:
        recent = replace(from_latencies([0.01] * answers), errors=errors)
        progress = Progress(as_of_s=130.0, recent=recent)
        found = condition(
            LATENCY,
            running("a"),
            progress,
            Silence(latency_s=130.0),
            Usage(),
            began_s=100.0,
            now_s=131.0,
            after_s=60.0,
        )
        return found.blind

    assert failing(20, 30) == failing(0, 5) == "more than 1 % of the job's requests fail"
    assert failing(49, 1) is failing(0, 4) is failing(0, 0) is None


def test_a_training_between_two_evaluations_is_not_blind():
    assert seen(TRAINING, 9e9, 200.0) == Condition()


@pytest.mark.parametrize("target", [LATENCY, TRAINING])
@pytest.mark.parametrize(("as_of_s", "when"), [(None, "in the first 1 min"), (200.0, "for 1 min")])
def test_a_source_that_cannot_be_read_is_named(target: Target, as_of_s: float | None, when: str):
    told = seen(target, 300.0, as_of_s, replace_in_flight(RESTS), trouble="it is a FIFO")
    assert told == Condition(f"no report {when}: it is a FIFO")


def replace_in_flight(silence: Silence) -> Silence:
    return silence._replace(in_flight=False)


def test_a_log_without_a_matching_line_is_named():
    told = seen(TRAINING, 160.1, log=LogFact(lines=7, matched=0)).blind
    assert told == "no report in the first 1 min: none of the log's lines matches the pattern"


# ---------------------------------------------------------------------- the idle


def test_counters_that_stand_still_are_idle_whatever_it_uses():
    busy = WORKS._replace(request_s=200.0)
    assert seen(LATENCY, 260.0, 260.0, busy) == Condition()
    assert seen(LATENCY, 260.1, 260.0, busy) == Condition(idle=Idle(200.0))


def test_a_request_that_waits_is_not_idle():
    assert seen(LATENCY, 500.0, 499.0, RESTS, in_flight=1) == Condition()


def test_a_service_whose_few_requests_all_fail_is_blind_and_not_idle():
    fails = WORKS._replace(request_s=495.0, failing_s=400.0)
    assert seen(LATENCY, 460.0, 460.0, fails._replace(request_s=455.0)) == Condition()
    assert seen(LATENCY, 500.0, 499.0, fails) == Condition("each request has failed for 1 min")


def test_reports_without_a_latency_do_not_make_a_service_idle():
    def gpu_alone(latency_s: float | None) -> Condition:
        return condition(
            LATENCY,
            running("a"),
            Progress(as_of_s=499.0),
            WORKS._replace(latency_s=latency_s),
            Usage(),
            began_s=100.0,
            now_s=500.0,
            after_s=60.0,
        )

    assert gpu_alone(None) == Condition("the job reports, but never a latency")
    assert gpu_alone(200.0) == Condition("no report for 1 min, although the job uses CPU")
    assert gpu_alone(499.0) == Condition(idle=Idle(100.0))


def test_a_silent_service_is_idle_if_it_said_so():
    quiet = WORKS._replace(request_s=200.0, in_flight=False)
    assert seen(LATENCY, 9e9, 200.0, quiet) == Condition(idle=Idle(200.0))
    hangs = RESTS._replace(request_s=200.0, in_flight=True)
    assert seen(LATENCY, 9e9, 200.0, hangs) == Condition("no report for 1 min")


@pytest.mark.parametrize(
    ("cores", "blind"),
    [
        (None, "no report for 1 min"),
        (IDLE_CORES, None),
        (IDLE_CORES + 0.001, "no report for 1 min, although the job uses CPU"),
    ],
)
def test_silence_is_idle_beside_hardly_any_cpu_alone(cores: float | None, blind: str | None):
    told = seen(LATENCY, 260.1, 200.0, Silence(request_s=200.0, cores=cores))
    assert told.blind == blind
    assert told.idle == (None if blind else Idle(200.0, certain=False))


def test_a_throttled_service_is_not_called_idle():
    told = seen(LATENCY, 260.1, 200.0, RESTS, throttled_ratio=0.9)
    assert told == Condition("no report for 1 min")


@pytest.mark.parametrize(
    ("idle", "text"),
    [
        (Idle(40.0), "no request for 4 min"),
        (Idle(220.0, began=True), "no request since it started, 1 min ago"),
        (Idle(270.0), "no request for 30 s"),
    ],
)
def test_idle_says_since_when(idle: Idle, text: str):
    assert idle.text(300.0) == text


def test_no_request_since_an_observed_start_is_said():
    told = seen(LATENCY, 160.1, None, RESTS._replace(start_observed=True)).idle
    assert told == Idle(100.0, began=True, certain=False)


# ---------------------------------------------------------------------- the metric that never comes


def test_a_training_without_its_metric_is_blind_after_a_minute():
    lacks = {"lacks": Lacks(120.0, 1, ("loss",)), "samples": (Sample(120.0, 1, ()),)}
    assert seen(TRAINING, 180.0, 179.0, **lacks) == Condition()  # type: ignore[arg-type]
    told = seen(TRAINING, 180.1, 179.0, **lacks)  # type: ignore[arg-type]
    assert told == Condition("steps come, `accuracy` never")

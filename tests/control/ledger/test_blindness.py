"""Who is blind, and who merely has nothing to tell."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlsched.control.ledger.blindness import blindness
from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Target
from dlsched.model.state import Progress
from dlsched.report.buckets import LONGEST_S
from tests.doubles import running

LATENCY = LatencyTarget(0.05)
TRAINING = AccuracyTarget("accuracy", 0.9, 0.97)


BOUND = " for 50 ms; give them a bound at 50 ms"
MEAN = ", or set a target for the mean"


def blind(
    target: Target | None,
    now_s: float,
    as_of_s: float | None = None,
    *,
    idle: bool = False,
    trouble: str | None = None,
    has_source: bool = True,
) -> str | None:
    """Of a job that runs since 100 s, with 60 s of patience."""
    return blindness(
        target,
        replace(running("a"), has_source=has_source),
        Progress(as_of_s=as_of_s, trouble=trouble),
        began_s=100.0,
        idle=idle,
        now_s=now_s,
        after_s=60.0,
    )


def test_who_has_no_target_is_never_blind():
    assert blind(None, 1000.0) is None
    assert blind(None, 1000.0, has_source=False) is None


@pytest.mark.parametrize("target", [LATENCY, TRAINING])
def test_without_a_source_one_is_blind_at_once(target: Target):
    assert blind(target, 100.0, has_source=False) == "no source of progress is given"


@pytest.mark.parametrize("target", [LATENCY, TRAINING])
@pytest.mark.parametrize("as_of_s", [None, 50.0], ids=["never told", "told before its start"])
def test_the_first_report_has_its_time(target: Target, as_of_s: float | None):
    assert blind(target, 160.0, as_of_s) is None
    assert blind(target, 160.1, as_of_s) == "no report in the first 1 min"
    assert blind(target, 160.1, 110.0) is None


def test_a_silent_service_is_blind_unless_it_was_idle():
    assert blind(LATENCY, 260.0, 200.0) is None
    assert blind(LATENCY, 260.1, 200.0) == "no report for 1 min"
    assert blind(LATENCY, 9e9, 200.0, idle=True) is None


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
        (LatencySketch(4, 0.1, spans=((0.0, 0.1, 4),)), None),
    ],
    ids=["a bucket", "the last bucket", "a mean", "a mean that bounds it", "too few requests"],
)
def test_a_latency_about_its_target_is_unclear(sketch: LatencySketch, why: str | None):
    spans = tuple((low, min(high, LONGEST_S), many) for low, high, many in sketch.spans)
    progress = Progress(as_of_s=110.0, recent=replace(sketch, spans=spans))
    target = LatencyTarget(0.05, 0.95)
    found = blindness(
        target, running("a"), progress, began_s=100.0, idle=False, now_s=120.0, after_s=60.0
    )
    assert found == why


def test_a_service_is_blind_while_more_than_chance_fails():
    def failing(answers: int, errors: int) -> str | None:
        recent = replace(from_latencies([0.01] * answers), errors=errors)
        progress = Progress(as_of_s=130.0, recent=recent)
        return blindness(
            LATENCY, running("a"), progress, began_s=100.0, idle=False, now_s=131.0, after_s=60.0
        )

    assert failing(20, 30) == failing(0, 5) == "more than 1 % of its requests fail"
    assert failing(49, 1) is failing(0, 4) is failing(0, 0) is None


def test_a_training_between_two_evaluations_is_not_blind():
    assert blind(TRAINING, 9e9, 200.0) is None


@pytest.mark.parametrize("target", [LATENCY, TRAINING])
def test_a_source_that_can_no_longer_be_read_is_no_rest(target: Target):
    assert blind(target, 260.0, 200.0, idle=True, trouble="it is a FIFO") is None
    words = blind(target, 260.1, 200.0, idle=True, trouble="it is a FIFO")
    assert words == "no report for 1 min: its source cannot be read"

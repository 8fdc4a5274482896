"""One training: exact times whatever the steps that time takes, and what it reports."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dlsched.model.spec import AccuracyTarget, Tier
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.training import Training, tier_steps
from dlsched.simulation.node.workloads import TrainingLoad

LOAD = TrainingLoad(
    steps=100,
    work_core_s=0.5,
    evaluate_every=10,
    curve=Curve(0.0, 1.0, 20, "exponential"),
    threads=2.0,
    checkpoint_every=25,
)
TARGET = AccuracyTarget("accuracy", deliver=0.5, finish=0.9)


def training(load: TrainingLoad = LOAD, seed: int = 1) -> Training:
    return Training(load, TARGET, random.Random(seed))


@pytest.mark.parametrize("pieces", [1, 7, 50])
def test_times_are_exact_whatever_the_pieces(pieces: int) -> None:
    one = training()
    one.grant(2.0, 8.0)
    assert one.ends_in_s() == 25.0
    for index in range(pieces):
        one.advance(25.0 * index / pieces, 25.0 / pieces)
    assert tier_steps(LOAD, TARGET) == {Tier.DELIVER: 14, Tier.FINISH: 47}
    assert one.tier_times_s == pytest.approx({Tier.DELIVER: 14 / 4, Tier.FINISH: 47 / 4})
    assert one.usage_core_s == pytest.approx(50.0)
    samples = [line.sample for line in one.lines(25.0) if line.sample is not None]
    assert [sample.step for sample in samples] == list(range(10, 101, 10))
    assert [sample.received_s for sample in samples] == pytest.approx(
        [2.5 * number for number in range(1, 11)]
    )
    told = dict(samples[0].metrics)
    assert told == {"accuracy": pytest.approx(LOAD.curve.value(10)), "total_steps": 100.0}


def test_it_wants_no_more_than_its_threads_or_its_quota() -> None:
    one = training()
    assert one.wants_cores(8.0) == 2.0
    assert one.wants_cores(0.5) == 0.5


def test_throttled_is_who_meets_the_quota_before_threads_or_neighbours() -> None:
    one = training()
    for cores, quota, throttled in ((0.5, 0.5, True), (0.3, 0.5, False), (2.0, 4.0, False)):
        one.grant(cores, quota)
        assert one.throttled is throttled


def test_a_crash_goes_back_to_the_checkpoint_but_a_tier_once_reached_stays() -> None:
    one = training()
    one.grant(2.0, 8.0)
    one.advance(0.0, 12.4)  # step 49.6
    reached = dict(one.tier_times_s)
    one.crash()
    assert one.ends_in_s() == pytest.approx(75 * 0.25)
    assert one.tier_times_s == reached
    one.advance(20.0, 2.0)
    steps = [line.sample.step for line in one.lines(22.0) if line.sample]
    assert steps == [30]


def test_without_a_checkpoint_a_crash_loses_all() -> None:
    one = training(replace(LOAD, checkpoint_every=None))
    one.grant(2.0, 8.0)
    one.advance(0.0, 12.4)
    one.crash()
    assert one.ends_in_s() == 25.0


def test_lines_are_a_second_apart_and_the_last_evaluation_wins() -> None:
    one = training(replace(LOAD, work_core_s=0.02))
    one.grant(2.0, 8.0)
    one.advance(0.0, 1.0)
    (line,) = one.lines(1.0)
    assert line.sample is not None and line.sample.step == 100


def test_a_small_validation_set_counts_whole_examples() -> None:
    one = training(replace(LOAD, validation_set=20))
    one.grant(2.0, 8.0)
    one.advance(0.0, 25.0)
    values = [line.sample.metrics[0][1] for line in one.lines(25.0) if line.sample]
    assert all(
        0 <= value <= 1 and value * 20 == pytest.approx(round(value * 20)) for value in values
    )
    true = [LOAD.curve.value(step) for step in range(10, 101, 10)]
    assert values != pytest.approx(true, abs=0.01)

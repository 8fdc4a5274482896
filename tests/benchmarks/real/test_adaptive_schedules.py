"""The clairvoyant of the committed traces, the gain beside it, and when a figure is reached."""

from __future__ import annotations

import pytest

from benchmarks.judge.trainings import Measured
from benchmarks.real.adaptive_schedules import (
    ADAPTIVE,
    GAIN_RATIO,
    ORACLE,
    Clairvoyant,
    foreseen,
    gain,
    load_trace,
    verdict,
)
from benchmarks.real.training_set import SCHEDULES
from dlsched.simulation.scoring import PLAIN, JobResult, RunResult


def run(policy: str, seed: int, **tier1_s: float) -> Measured:
    jobs = tuple(
        JobResult(name, "training", 0.0, 900.0, tier1_s=at_s, goals=("tier1",))
        for name, at_s in tier1_s.items()
    )
    return Measured(RunResult(policy, seed, 100.0, 100, 0, jobs), {})


BEST = Clairvoyant(
    plain_s={"a": 10.0, "b": 30.0},
    best_s={"a": 12.0, "b": 16.0},
    adaptive_s={"a": 12.0, "b": 20.0},
)


def test_a_job_may_be_as_late_as_under_plain_docker_or_the_clairvoyant_and_a_little():
    assert BEST.allowed("b") == pytest.approx(1.05)
    assert BEST.allowed("a") == pytest.approx(1.05 * 1.2)


@pytest.mark.parametrize(
    ("b_s", "part", "word"), [(20.0, 2 / 3, "not reached"), (19.0, 0.225 / 0.3, ": reached")]
)
def test_seven_tenths_of_the_gain_are_asked_for(b_s, part, word):
    runs = [run(PLAIN, 1, a=10.0, b=30.0), run(ADAPTIVE, 1, a=12.0, b=b_s)]
    told = verdict("s", BEST, runs)
    assert told.part == pytest.approx(part)
    assert told.worse == ()
    assert told.lines()[0].endswith(word)


def test_the_median_of_the_seeds_counts_and_a_seed_without_plain_docker_does_not():
    runs = [
        *(run(PLAIN, seed, a=10.0, b=30.0) for seed in (1, 2, 3)),
        run(ADAPTIVE, 1, a=13.0, b=10.0),
        run(ADAPTIVE, 2, a=13.0, b=20.0),
        run(ADAPTIVE, 3, a=99.0, b=90.0),
        run(ADAPTIVE, 4, a=1.0, b=1.0),
    ]
    told = verdict("s", BEST, runs)
    assert [round(one, 3) for one in told.gains] == [0.425, 0.175, -3.725]
    assert told.worse == ("a",)
    assert "worse by more than 5% than that or plain Docker: a" in told.lines()[1]


def test_what_can_be_had_on_these_containers_is_told_beside_it():
    runs = [
        run(PLAIN, 1, a=10.0, b=30.0),
        run(ADAPTIVE, 1, a=12.0, b=22.0),
        run(ORACLE, 1, a=12.0, b=20.0),
    ]
    told = verdict("s", BEST, runs)
    assert told.oracle_gains == (pytest.approx(0.2),)
    trace, beside = told.lines()[2:]
    assert trace.endswith("20.0%: 0.67 of the clairvoyant's gain")
    assert "gains 20.0% on the same containers (by seed: 20.0%)" in beside
    assert beside.endswith("0.67 of the clairvoyant's gain; adaptive 0.75 of it")


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: one.name)
def test_the_committed_traces_hold_the_schedules_and_leave_something_to_gain(schedule):
    trace = load_trace(schedule.name)
    assert {job.name: job.arrives_s for job in trace.jobs} == pytest.approx(
        {job.name: job.arrives_s for job in schedule.jobs}, abs=1.0
    )
    for job in trace.jobs:
        model = next(one.model for one in schedule.jobs if one.name == job.name)
        assert (job.spec.target.deliver, job.spec.target.finish) == (model.deliver, model.finish)
        assert job.load.steps == pytest.approx(model.steps, rel=0.02)
    best = foreseen(trace)
    assert 0.2 < best.gain < 0.8
    assert sum(best.best_s.values()) < sum(best.plain_s.values())
    # Where threads are as the clairvoyant's, most of it is reached.
    assert gain(best.adaptive_s, best.plain_s) >= GAIN_RATIO * best.gain

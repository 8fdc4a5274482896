"""Simulated against real: how errors are counted, and that a record of a simulation gives it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.real.training import Kept
from benchmarks.simulated.sim_vs_real import (
    FROM_PLAIN,
    SAME,
    Pair,
    simulated_reports,
    table_of,
    training_pairs,
    verdicts,
)
from dlsched.model.cycle import CycleReport
from dlsched.simulation.trace import Recipe, generate

TRACE = generate(
    Recipe(jobs=3, kind="training", schedule="fixed", gap_s=20.0, duration_s=300.0, cores=2.0)
)
TIME = Pair("three", 3, "tradl", 1, SAME, "tier 1", "a", 20.0, 22.0)
COUNT = Pair("satisfied", 8, "dqoes", 1, SAME, "within 10 %", "", 7, 5)


class KeptInMemory(Kept):
    """A run that never was on an engine: its cycles are a simulation's."""

    def reports(self) -> list[CycleReport]:
        return simulated_reports(TRACE, self.spelled, seed=1)


def kept(policy: str) -> Kept:
    arrivals = {job.name: job.arrives_s for job in TRACE.jobs}
    return KeptInMemory(
        None, "three", policy, policy, 1, "", 2.0, arrivals, 0.0, {}  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.long
def test_a_record_of_a_simulation_gives_the_simulation_again():
    pairs, _ = training_pairs([kept("fair"), kept("none")])
    assert {(pair.policy, pair.variant) for pair in pairs} == {
        ("none", SAME),
        ("fair", SAME),
        ("fair", FROM_PLAIN),
    }
    assert {pair.what for pair in pairs} == {"tier 1", "tier 2", "completion"}
    errors = [abs(pair.error_ratio) for pair in pairs if pair.error_ratio is not None]
    assert len(errors) == len(pairs)
    assert sorted(errors)[len(errors) // 2] < 0.05


def test_an_error_is_a_ratio_of_the_real_time_and_of_the_number_of_services():
    assert TIME.error_ratio == pytest.approx(0.1)
    assert COUNT.error_ratio == pytest.approx(-0.25)
    assert replace(TIME, simulated=None).error_ratio is None
    assert replace(TIME, real=None).error_ratio is None


def test_a_time_that_was_reached_in_one_alone_is_never_within():
    pairs = [
        TIME,
        replace(TIME, job="b", simulated=30.0),
        replace(TIME, job="c", simulated=None),
        replace(TIME, job="d", real=None),
    ]
    (line,) = table_of(pairs)
    assert line["within 15 %"] == "1 of 4"
    assert line["largest error, %"] is None
    (told,) = verdicts(pairs)
    assert "1 of 4 within 15%" in told
    assert "2 reached in one alone" in told

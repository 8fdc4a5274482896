"""Simulated against real: how errors are counted, and that a record of a simulation gives it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from benchmarks.real.training import Kept
from benchmarks.simulated.sim_vs_real import (
    FROM_PLAIN,
    SAME,
    Pair,
    rows_of,
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
        return simulated_reports(TRACE, self.policy, self.spelled, seed=1)


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


def test_what_only_the_simulation_reached_is_a_pair_too():
    class Unreached(KeptInMemory):
        def reports(self) -> list[CycleReport]:
            """Cut off before all is reached; plain Docker's run was whole."""
            whole = super().reports()
            return whole[: len(whole) // 3]

    plain = kept("none")
    cut = Unreached(**{field.name: getattr(kept("fair"), field.name) for field in fields(Kept)})
    pairs, _ = training_pairs([plain, cut])
    told = {(p.job, p.what): p for p in pairs if (p.policy, p.variant) == ("fair", FROM_PLAIN)}
    assert len(told) == 9, "three jobs, three goals each"
    assert told["training-2", "completion"].real is None
    assert told["training-2", "completion"].simulated is not None


def test_times_and_counts_are_told_apart():
    assert [line.partition(":")[0] for line in verdicts([TIME, COUNT])] == [
        "same run, times to tier 1 and 2",
        "same run, satisfied counts (of all services)",
    ]
    assert verdicts([replace(TIME, what="completion")]) == []


def test_rows_have_the_columns_of_all_result_files():
    (row,) = rows_of([TIME])
    assert {"scenario", "n", "policy", "seed", "metric", "value", "of_optimum", "of_plain"} <= set(
        row
    )

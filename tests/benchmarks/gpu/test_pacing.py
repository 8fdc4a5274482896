"""The GPU benches' figures."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from benchmarks.gpu import pacing
from benchmarks.gpu import placement as bench
from benchmarks.gpu.move import JOB, Moved, moves_in
from benchmarks.gpu.pacing import summary
from dlsched.model.actions import Move, Outcome, Start
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import CheckpointAck, Sample
from dlsched.model.spec import Checkpoint, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot
from tests.doubles import job_spec


def test_the_worst_of_all_cases_with_and_without_turns_is_what_is_told() -> None:
    cases = [
        ((0.25,), True, [0.27]),
        ((0.5, 0.5), True, [0.49, 0.46]),
        ((0.5, 0.5), False, [0.25, 0.25]),
    ]
    rows = [pacing._row("D", "10 ms", *case) for case in cases]
    assert [row["worst error, points"] for row in rows] == [2.0, 4.0, 25.0]
    assert [row["together, of exclusive"] for row in rows] == ["-", 0.95, 0.5]
    in_turns, without = summary(rows)
    assert in_turns.startswith("D, in turns: worst error 4.0 points of 2 cases (figure: 5); two ")
    assert in_turns.endswith("at least 0.950 of exclusive throughput (figure: 0.95).")
    assert without.endswith(
        "25.0 points of 1 cases; two jobs together at least 0.500 of exclusive throughput."
    )


@pytest.mark.timed
def test_the_simulated_device_is_shared_better_in_turns_than_without() -> None:
    in_turns = pacing._simulate("irregular", (0.5, 0.5), 20.0, turns=True)
    without = pacing._simulate("irregular", (0.5, 0.5), 20.0, turns=False)
    assert sum(in_turns) >= 0.95
    assert sum(without) < 0.9
    assert "torch" not in sys.modules


def test_who_got_worse_is_counted_against_first_fit_job_by_job():
    begun = {
        "a": bench.Begun(10.0, mixed=False, beside=0.5), "b": bench.Begun(0.0, True, None),
        "c": bench.Begun(5.2, False, 0.1),
    }  # fmt: skip
    naive = {name: bench.Begun(5.0, False, 0.0) for name in begun}
    figures = bench._figures(begun, naive)
    assert (figures["wait longer"], figures["wait shorter"], figures["mixed"]) == (1, 1, 1)
    assert figures["beside"] == pytest.approx(0.3)
    rows = [
        {"load": 1.0, "seed": 1, "rule": "first fit", **bench._figures(naive, naive)},
        {"load": 1.0, "seed": 1, "rule": "ours", **figures},
    ]
    first, ours = bench.queue_table(rows)
    told = "of first fit's (best, worst seed)"
    assert (first[told], ours[told]) == ("1.00 (1.00, 1.00)", "1.01 (1.01, 1.01)")
    assert (first["seeds worse"], ours["seeds worse"]) == ("0 of 1", "1 of 1")


SPEC = job_spec(JOB)
MOVE = Move("old", Start(SPEC, Limits(), 1024), Checkpoint("SIGUSR1", 9.0, "/ckpt"), "it wanders")


def report(
    now_s: float, container: str, started_s: float, *, step: int, told: float = 0.0, **more: object
) -> CycleReport:
    """A cycle whose job runs, and has acknowledged that step; told: when it reported again."""
    samples = (Sample(9.0, 40, ()), Sample(11.5, 43, ()))
    if told:
        samples += (Sample(told, 43, ()),)
    progress = Progress(samples=samples, checkpoint=CheckpointAck(step, "/ckpt"))
    job = JobView(SPEC, JobState.RUNNING, container_id=container, started_at_s=started_s)
    snapshot = Snapshot(1, now_s, NodeView(1, 1, 1), (replace(job, progress=progress),))
    wall = f"2026-01-01T00:00:{now_s:06.3f}Z"
    return CycleReport(snapshot, "wanders", wall_time=wall, **more)  # type: ignore[arg-type]


BEGUN = (Outcome(MOVE, "begun"),)


@pytest.mark.parametrize(("container", "back"), [("new", False), ("old", True)])
def test_what_was_made_after_the_last_word_is_lost_and_the_pause_ends_with_a_report(
    container: str, back: bool
) -> None:
    reports = [
        report(10.0, "old", 1.0, step=30, outcomes=BEGUN),
        report(12.0, "old", 1.0, step=42),
        report(14.0, container, 13.5, step=42),
        report(17.0, container, 13.5, step=42, told=16.5),
    ]
    (move,) = moves_in(reports)
    assert move == Moved(10.0, back, 6.5, acknowledged=42, made=43, resumed=42)
    assert (move.lost_acknowledged, move.lost_after) == (0, 1)
    assert moves_in(reports[:-1]) == [], "it has not come to its end"

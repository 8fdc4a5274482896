"""The figures of the moves: what counts as lost, and how long a pause is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu.move import JOB, Moved, Output, Wanders, WandersParameters, moves_in, row_of
from dlsched.model.actions import Move, Outcome, Start
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import CheckpointAck
from dlsched.model.spec import Checkpoint, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot
from tests.doubles import gpu_fact, gpu_node, job_spec

SPEC = job_spec(JOB)
MOVE = Move("old", Start(SPEC, Limits(), 1024), Checkpoint("SIGUSR1", 9.0, "/ckpt"), "it wanders")


def report(
    now_s: float, container: str, started_s: float, *, step: int, told_s: float, **more: object
) -> CycleReport:
    """A cycle whose job runs."""
    progress = Progress(as_of_s=told_s, checkpoint=CheckpointAck(step, "/ckpt"))
    job = JobView(SPEC, JobState.RUNNING, container_id=container, started_at_s=started_s)
    snapshot = Snapshot(1, now_s, NodeView(1, 1, 1), (replace(job, progress=progress),))
    wall = f"2026-01-01T00:00:{now_s:06.3f}Z"
    return CycleReport(snapshot, "wanders", wall_time=wall, **more)  # type: ignore[arg-type]


def stamp(at_s: float) -> str:
    return f"2026-01-01T00:00:{at_s:06.3f}"


BEGUN = (Outcome(MOVE, "begun"),)
OUTPUT = Output(
    [
        (stamp(9.0), "step 40 loss 0.1"),
        (stamp(11.5), "step 43 loss 0.1"),
        (stamp(15.0), "checkpoint /ckpt/step-42.ckpt: resuming at step 42"),
        (stamp(16.0), "step 43 loss 0.1"),
    ]
)


@pytest.mark.parametrize(("container", "back"), [("new", False), ("old", True)])
def test_what_was_made_after_the_last_word_is_lost_and_the_pause_ends_with_a_report(
    container: str, back: bool
) -> None:
    reports = [
        report(10.0, "old", 1.0, step=30, told_s=9.5, outcomes=BEGUN),
        report(12.0, "old", 1.0, step=42, told_s=11.0),
        report(14.0, container, 13.5, step=42, told_s=11.0),
        report(17.0, container, 13.5, step=42, told_s=16.5),
    ]
    (move,) = moves_in(reports, OUTPUT)
    assert move == Moved(10.0, back, 6.5, acknowledged=42, made=43, resumed=42)
    assert (move.lost_acknowledged, move.lost_after) == (0, 1)


def test_a_step_that_was_acknowledged_and_is_made_again_is_counted() -> None:
    assert replace(MOVED, resumed=20).lost_acknowledged == 22


MOVED = Moved(10.0, False, 6.5, acknowledged=42, made=43, resumed=42)


def test_a_move_that_has_not_come_to_its_end_is_none_yet() -> None:
    reports = [
        report(10.0, "old", 1.0, step=30, told_s=9.5, outcomes=BEGUN),
        report(14.0, "new", 13.5, step=42, told_s=11.0),
    ]
    assert moves_in(reports, OUTPUT) == []


def test_a_row_tells_the_sums_and_the_spread() -> None:
    moves = [replace(MOVED, pause_s=pause_s, back=pause_s == 9.0) for pause_s in (5.0, 9.0, 6.0)]
    row = row_of("told to end", moves)
    assert (row["moves"], row["went back"], row["steps lost after it"]) == (3, 1, 3)
    assert row["steps lost of an acknowledged checkpoint"] == 0
    pauses = [row[name] for name in ("least s", "pause, median s", "most s")]
    assert pauses == [5.0, 6.0, 9.0]


def test_it_wanders_once_it_has_reported_and_stayed() -> None:
    policy = Wanders(WandersParameters(stay_s=4.0))
    job = JobView(SPEC, JobState.RUNNING, gpus=("GPU-0",), started_at_s=10.0)
    node = gpu_node(gpu_fact(0), gpu_fact(1))

    def asked(now_s: float, told_s: float | None) -> object:
        progress = Progress(as_of_s=told_s)
        return policy.decide(
            Snapshot(1, now_s, node, (replace(job, progress=progress),)), None
        ).gpus

    assert asked(13.9, 11.0) == {}
    assert asked(14.0, 9.0) == {}
    assert asked(14.0, 11.0) == {JOB: ("GPU-1",)}

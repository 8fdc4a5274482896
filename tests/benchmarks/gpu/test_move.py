"""The figures of the moves: what counts as lost, and how long a pause is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu.move import JOB, Moved, Output, moves_in
from dlsched.model.actions import Move, Outcome, Start
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import CheckpointAck
from dlsched.model.spec import Checkpoint, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot
from tests.doubles import job_spec

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


MOVED = Moved(10.0, False, 6.5, acknowledged=42, made=43, resumed=42)


def test_a_move_that_has_not_come_to_its_end_is_none_yet() -> None:
    reports = [
        report(10.0, "old", 1.0, step=30, told_s=9.5, outcomes=BEGUN),
        report(14.0, "new", 13.5, step=42, told_s=11.0),
    ]
    assert moves_in(reports, OUTPUT) == []

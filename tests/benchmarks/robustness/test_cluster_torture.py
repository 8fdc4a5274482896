"""The plan of cluster-torture, its witness, and what it counts."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.robustness.cluster_torture import (
    STEPS,
    VICTIMS,
    Outcome,
    faults,
    headlines,
    table,
)
from benchmarks.robustness.cluster_world import SOCKET, Witness
from tests.waiting import until


def test_each_victim_dies_at_each_step_and_all_steps_come_first() -> None:
    plan = faults()
    places = {(step, at) for step in STEPS for at in step.at}
    assert len(set(plan)) == len(plan) == len(places) * len(VICTIMS)
    assert {(one.step, one.at) for one in plan[: len(places)]} == places
    assert {one.victim for one in plan[: len(VICTIMS)]} == set(VICTIMS)


def test_only_what_happened_is_counted() -> None:
    outcomes = [
        Outcome("kill", "M1", "before file away", "controller", reached=True, runs_on="target"),
        Outcome("kill", "M1", "after file away", "controller"),
        Outcome("kill", "M1", "after file away", "controller", reached=True, wrong=["it is gone"]),
    ]
    row, whole = table(outcomes)
    assert (row["faults"], row["not reached"], row["survived"]) == (2, 1, 1)
    assert row["lost"] == whole["lost"] == "it is gone"
    first, second, _, _ = headlines(outcomes)
    assert first == (
        "2 kills at 2 points of a move, of each process at 2 or more (asked 28): not reached"
    )
    assert second.startswith("0 faults of three managers")
    assert headlines(outcomes)[2].endswith(": 1 (asked none): not reached")
    assert headlines(outcomes[:2])[2].endswith(": 0 (asked none): reached")


@pytest.mark.timed
def test_the_witness_sees_starts_below_a_checkpoint_and_two_at_once(tmp_path: Path) -> None:
    def job() -> socket.socket:
        talking = socket.socket(socket.AF_UNIX)
        talking.connect(str(tmp_path / SOCKET))
        return talking

    with closing(Witness(tmp_path, lambda _: False)) as witness:
        seen = witness.seen
        with job() as first:
            first.sendall(b"begins 0\nsaved 7\n")
            assert first.recv(8) == b"go"
            until(lambda: seen.saved == 7, "the checkpoint is seen")
            with job() as second:
                second.sendall(b"begins 7\n")
                assert second.recv(8) == b"go"
                assert seen.wrong == ["2 processes of it at the same time"]
        until(lambda: seen.living == 0, "no job lives")
        with job() as third:
            third.sendall(b"locked-out 6\nbegins 6\n")
            assert third.recv(8) == b"go"
        assert seen.wrong[1:] == ["its lock was taken twice", "began at step 6, had saved 7"]

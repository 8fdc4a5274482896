"""How long a lease is, and which nodes are absent for a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.leases import (
    LEASE_S,
    MARGIN_S,
    Absent,
    absent_for,
    is_leased,
    leased,
    over_s,
)
from dlsched.cluster.core.records import Record, RecordState
from dlsched.model.spec import Checkpoint, Stop
from tests.doubles import job_spec

PLAIN = job_spec("job")
CHECKPOINT = Checkpoint("SIGUSR1", 300.0, "/ckpt", shared=True)
MOVES = replace(PLAIN, failover="restart", checkpoint=CHECKPOINT, stop=Stop(grace_s=50.0))
ON_A = Record("job", RecordState.PLACED, "a")
LEASED = leased(ON_A, MOVES)
OVER_S = LEASE_S + 300.0 + 50.0 + MARGIN_S


def test_it_is_over_once_the_job_has_saved_itself_and_ended() -> None:
    assert over_s(LEASED) == OVER_S
    assert over_s(leased(ON_A, replace(MOVES, checkpoint=None))) == OVER_S - 300.0


@pytest.mark.parametrize("confirmed", [False, True])
def test_an_arrival_and_a_job_that_may_start_elsewhere_have_one(confirmed: bool) -> None:
    assert is_leased(MOVES, confirmed=confirmed)
    assert is_leased(PLAIN, confirmed=confirmed) is not confirmed


DOWN = {"a": OVER_S + 1.0, "b": OVER_S - 1.0}
WHY = "the job's node is down, and the lease has run out"


@pytest.mark.parametrize(
    ("record", "paused", "off"),
    [
        (LEASED, False, {"a": WHY}),
        (LEASED, True, {}),
        # Only its arrivals are over there.
        (leased(ON_A, replace(MOVES, failover="wait")), False, {}),
    ],
    ids=["may start elsewhere", "in a pause", "any other job"],
)
def test_a_node_whose_lease_is_over_is_gone_and_off_for_some(
    record: Record, paused: bool, off: dict[str, str]
) -> None:
    assert absent_for(record, DOWN, (), paused=paused) == Absent(frozenset({"a"}), off)


def test_where_nobody_knows_how_it_runs_only_what_a_person_said_counts() -> None:
    declared = "the job's node was declared off"
    found = absent_for(ON_A, DOWN, ("c",), paused=False)
    assert found == Absent(frozenset({"c"}), {"c": declared})
    assert absent_for(LEASED, DOWN, ("a", "c"), paused=False).off == {"a": declared, "c": declared}

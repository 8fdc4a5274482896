"""What people read of rounds names hosts, not the ids of a swarm's nodes."""

from __future__ import annotations

import pytest

from dlsched.api.cluster_schema import ClusterTotals
from dlsched.cluster.core.decider import ClusterAnswer
from dlsched.cluster.core.guards import Approved
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.model import (
    ClusterDecision,
    ClusterJob,
    ClusterSnapshot,
    Move,
    Transit,
)
from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.rounds import RoundLog, by_host, happened, names_of
from dlsched.cluster.store import Member

HERE, THERE = "k3s8f0vq2m7w1x9z4b6n5c0d1", "p3s8f0vq2m7w1x9z4b6n5c0d2"


PLACED = Record("resnet", RecordState.PLACED, HERE)
LEAVING = Record("resnet", RecordState.LEAVING, HERE, target=THERE)
MEMBERS = {HERE: Member(HERE, host="gpu-1"), THERE: Member(THERE, host="gpu-2")}


def report(
    before: Record = PLACED, *written: Record, decides: bool = False, moving: bool = True
) -> RoundReport:
    """A round that wrote these records, or whose policy decided to move the job."""
    transits = (Transit("resnet", HERE, THERE, 20.0),) if moving else ()
    found = RoundReport(
        snapshot=ClusterSnapshot(1, 10.0, jobs=(ClusterJob("resnet", node=HERE),), moving=transits),
        members=MEMBERS,
        facts=ClusterFacts(10.0, {}, {"resnet": before}, {}, {}, frozenset({"resnet"})),
        records={"resnet": (before, *written)[-1]},
        written=list(written),
    )
    if decides:
        decision = ClusterDecision(why={"resnet": f"{HERE}>{THERE}: gains"})
        approved = Approved(moves=(Move("resnet", THERE),))
        found.answer = ClusterAnswer(decision, approved=approved, asked=True)
    return found


@pytest.mark.parametrize("dropped", [False, True])
def test_a_move_that_the_policy_decided_says_why_when_its_job_leaves(dropped: bool) -> None:
    log = RoundLog()
    assert log.take(report(decides=True, moving=False), "now") == []
    if dropped:
        log.take(report(moving=False), "now")
    why = "" if dropped else ": gpu-1>gpu-2: gains"
    assert log.take(report(PLACED, LEAVING), "now") == [f"resnet: leaves gpu-1 for gpu-2{why}"]


def test_moves_are_counted_by_what_came_of_them() -> None:
    log = RoundLog()
    moving = Record("resnet", RecordState.MOVING, THERE, 2, source=HERE)
    arrived = Record("resnet", RecordState.PLACED, THERE, 2)
    log.take(report(moving, arrived), "now")
    failed = report(LEAVING, PLACED)
    failed.failed = {"resnet": "it saved nothing"}
    log.take(failed, "now")
    assert log.totals() == ClusterTotals(completed=1, failed=1)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (0, "exit code 0"),
        (1, "exit code 2, given up after 3 restarts"),
        (1, "killed: out of memory"),
        (1, ""),
    ],
)
def test_an_end_says_its_exit_code_once(code: int, why: str) -> None:
    record = Record("job", RecordState.ENDED, "a", exit_code=code, why=why)
    assert happened(record, None, "", {}) == f"ended on a: {why or 'exit code 1'}"


def test_reasons_name_hosts_instead_of_node_ids() -> None:
    node, twins = "k3s8f0vq2m7w1x9z4b6n5c0d1", ("a" * 25, "b" * 25)
    members = {node: Member(node, host="gpu-1")}
    members |= {twin: Member(twin, host="twin") for twin in twins}
    text = f"{node}: the node drains; {twins[0]}: the node drains; {'c' * 25}"
    shown = f"gpu-1: the node drains; {twins[0]}: the node drains; {'c' * 25}"
    assert by_host(text, names_of(members)) == shown

"""What people read of rounds names hosts, not the ids of a swarm's nodes."""

from __future__ import annotations

import pytest

from dlsched.cluster.core.decider import ClusterAnswer
from dlsched.cluster.core.guards import Approved
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.core.snapshot import (
    ALTERNATIVES_MAX,
    Alternative,
    ClusterDecision,
    ClusterJob,
    ClusterSnapshot,
    Move,
)
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.rounds import RoundLog, by_host, happened, names_of
from dlsched.cluster.store import Member

HERE, THERE = "k3s8f0vq2m7w1x9z4b6n5c0d1", "p3s8f0vq2m7w1x9z4b6n5c0d2"


def test_reasons_of_moves_and_of_refused_nodes() -> None:
    placed = Record("resnet", RecordState.PLACED, HERE)
    leaving = Record("resnet", RecordState.LEAVING, HERE, target=THERE)
    report = RoundReport(
        snapshot=ClusterSnapshot(1, 10.0, jobs=(ClusterJob("resnet", node=HERE),)),
        members={HERE: Member(HERE, host="gpu-1"), THERE: Member(THERE, host="gpu-2")},
        facts=ClusterFacts(10.0, {}, {"resnet": placed}, {}, {}, frozenset({"resnet"})),
        records={"resnet": leaving},
        answer=ClusterAnswer(
            ClusterDecision(
                why={"resnet": f"{HERE}>{THERE}: gains"},
                alternatives={"resnet": (Alternative(THERE, f"{THERE}: the node drains"),) * 9},
            ),
            approved=Approved(moves=(Move("resnet", THERE),)),
            asked=True,
        ),
        written=[leaving],
    )
    log = RoundLog()
    log.take(report, "now")
    (job,) = log.jobs(report)
    assert [one.why for one in job.moved] == ["gpu-1>gpu-2: gains"]
    assert [one.refused for one in job.alternatives] == [
        "gpu-2: the node drains"
    ] * ALTERNATIVES_MAX
    # Nodes themselves are named as in the rows of the nodes.
    assert {one.node for one in job.alternatives} == {job.moved[0].target} == {THERE}


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


def test_what_another_manager_changed_is_as_old_as_this_one_has_known_it() -> None:
    def round_at(now_s: float, record: Record) -> RoundReport:
        return RoundReport(
            snapshot=ClusterSnapshot(1, now_s),
            facts=ClusterFacts(now_s, {}, {"resnet": record}, {}, {}, frozenset({"resnet"})),
            records={"resnet": record},
        )

    placed = Record("resnet", RecordState.PLACED, "a")
    moved = Record("resnet", RecordState.PLACED, "b", epoch=3)
    log, ages = RoundLog(), []
    for report in (
        round_at(10.0, placed),
        round_at(100.0, placed),
        RoundReport(),  # another manager leads
        round_at(500.0, moved),
        round_at(520.0, moved),
    ):
        log.take(report, "now")
        ages += [job.since_s for job in log.jobs(report)]
    assert ages == [0.0, 90.0, 0.0, 20.0]

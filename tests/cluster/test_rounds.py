"""What people read of rounds names hosts, not the ids of a swarm's nodes."""

from __future__ import annotations

from dlsched.cluster.core.decider import ClusterAnswer
from dlsched.cluster.core.guards import Approved
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.model import (
    ALTERNATIVES_MAX,
    Alternative,
    ClusterJob,
    ClusterSnapshot,
    Move,
)
from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.rounds import RoundLog
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
            Approved(moves=(Move("resnet", THERE),)),
            why={"resnet": f"{HERE}>{THERE}: gains"},
            asked=True,
            alternatives={"resnet": (Alternative(THERE, f"{THERE}: it drains"),) * 9},
        ),
        written=[leaving],
    )
    log = RoundLog()
    log.take(report, "now")
    (job,) = log.jobs(report)
    assert [one.why for one in job.moved] == ["gpu-1>gpu-2: gains"]
    assert [one.refused for one in job.alternatives] == ["gpu-2: it drains"] * ALTERNATIVES_MAX
    # Nodes themselves are named as in the rows of the nodes.
    assert {one.node for one in job.alternatives} == {job.moved[0].target} == {THERE}

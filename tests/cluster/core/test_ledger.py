"""The snapshot that follows from records and reports, round by round, and the speeds of nodes by
the pace of jobs of the same image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlsched.cluster.core.job_memory import BARRED_S, DesiredJob
from dlsched.cluster.core.ledger import ClusterFacts, ClusterLedger, Pace, speeds
from dlsched.cluster.core.records import Holding, Phase, Record, RecordState, Saved
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.core.snapshot import ClusterSnapshot, Evaluation, Left, NodeState, Transit
from dlsched.cluster.core.transit import ARRIVAL_S
from dlsched.model.spec import ContainerSpec, JobSpec

ON_A = Record("job", RecordState.PLACED, "a")
MOVING = Record("job", RecordState.MOVING, "b", 2, source="a", saved=Saved(10))


def desired(*names: str, image: str = "image") -> dict[str, DesiredJob]:
    spec = JobSpec("", ContainerSpec(image))
    return {
        name: DesiredJob(replace(spec, name=name), float(index)) for index, name in enumerate(names)
    }


def update(
    ledger: ClusterLedger,
    now_s: float,
    records: list[Record],
    reports: dict[str, list[JobReport]],
    jobs: dict[str, DesiredJob] | None = None,
    moves: dict[str, tuple[str, float]] | None = None,
    held: dict[str, Holding] | None = None,
) -> ClusterSnapshot:
    holdings = {node: (one,) for node, one in (held or {}).items()}
    facts = ClusterFacts(
        now_s,
        dict.fromkeys("abc", NodeState.READY),
        {one.job: one for one in records},
        {
            node: NodeReport(node, 8.0, jobs=tuple(those), holdings=holdings.get(node, ()))
            for node, those in reports.items()
        },
        desired("job") if jobs is None else jobs,
    )
    return ledger.update(facts, moves or {})


def report(**more: Any) -> JobReport:
    return JobReport("job", **more)


@pytest.fixture
def ledger() -> ClusterLedger:
    return ClusterLedger()


def test_a_job_without_a_record_waits_in_order_of_arrival() -> None:
    found = update(ClusterLedger(), 0.0, [], {"a": []}, desired("zebra", "ant"))
    assert [job.name for job in found.queue] == ["zebra", "ant"]
    assert found.jobs == ()


SIZE = 100 << 20
"""100 s at the least rate."""


@pytest.mark.parametrize(
    ("node", "epoch", "came", "at_s", "waited_s"),
    [
        ("b", 2, 1, 150.0, 0.0),
        ("b", 2, SIZE, 150.0, 0.0),
        ("b", 2, 1, ARRIVAL_S + 99.0, 0.0),
        ("b", 2, 1, ARRIVAL_S + 101.0, ARRIVAL_S + 101.0),  # too slow
        ("b", 2, None, 150.0, 150.0),
        ("b", 2, 0, 150.0, 150.0),
        ("b", 2, SIZE + 1, 150.0, 150.0),  # more than there is
        ("b", 1, 1, 150.0, 150.0),
        ("a", 2, 1, 150.0, 150.0),
    ],
)
def test_an_arrival_is_waited_for_while_its_checkpoint_comes(
    node: str, epoch: int, came: int | None, at_s: float, waited_s: float
) -> None:
    ledger, moving = ClusterLedger(), replace(MOVING, saved=Saved(10, size_bytes=SIZE))
    update(ledger, 0.0, [moving], {})
    comes(ledger, at_s, moving, node, epoch, came)
    assert ledger.waited_s("job", at_s) == waited_s


def comes(
    ledger: ClusterLedger, at_s: float, record: Record, node: str, epoch: int, came: int | None
) -> None:
    holding = Holding("job", epoch, Phase.ARRIVING, came_bytes=came)
    update(ledger, at_s, [record], {node: []}, held={node: holding})


def test_bytes_that_came_before_are_no_progress() -> None:
    ledger, moving = ClusterLedger(), replace(MOVING, saved=Saved(10, size_bytes=SIZE))
    update(ledger, 0.0, [moving], {})
    for at_s, came in ((10.0, 7), (20.0, 7), (30.0, 6), (40.0, 7)):
        comes(ledger, at_s, moving, "b", 2, came)
    assert ledger.waited_s("job", 40.0) == 30.0
    undoing = replace(moving, state=RecordState.UNDOING)
    update(ledger, 50.0, [undoing], {})
    assert ledger.waited_s("job", 50.0) == 0.0


def test_a_node_is_silent_once_its_last_report_is_old(ledger: ClusterLedger) -> None:
    update(ledger, 0.0, [], {"a": [], "b": []})
    found = update(ledger, 31.0, [], {"b": []})
    assert {node.name: node.state for node in found.nodes} == {
        "a": NodeState.SILENT,
        "b": NodeState.READY,
    }


def test_a_node_that_never_answered_is_unanswered_since_the_controller_began(
    ledger: ClusterLedger,
) -> None:
    """Its lease may have been renewed by an earlier controller until then."""
    assert ledger.unanswered_s("b", 50.0) == 0.0
    update(ledger, 100.0, [], {"a": []})
    update(ledger, 110.0, [], {"a": []})
    assert (ledger.unanswered_s("a", 130.0), ledger.unanswered_s("b", 130.0)) == (20.0, 30.0)


def test_only_the_owner_s_report_of_a_job_counts() -> None:
    found = update(
        ClusterLedger(), 0.0, [ON_A],
        {"a": [report(used_core_s=5.0)], "b": [report(used_core_s=9.0)]},
    )  # fmt: skip
    assert found.jobs[0].done_core_s == 5.0


def test_what_a_job_has_done_is_the_sum_over_its_nodes(ledger: ClusterLedger) -> None:
    update(ledger, 0.0, [ON_A], {"a": [report(used_core_s=50.0)]})
    found = update(ledger, 10.0, [MOVING], {"a": [], "b": []})
    assert (found.jobs[0].done_core_s, found.jobs[0].node, found.jobs[0].reports) == (50.0, "b", 0)
    found = update(ledger, 20.0, [MOVING], {"b": [report(used_core_s=7.0)]})
    assert found.jobs[0].done_core_s == 57.0


def test_after_a_move_what_was_measured_before_is_better_than_the_first_reports(
    ledger: ClusterLedger,
) -> None:
    update(ledger, 0.0, [ON_A], {"a": [report(used_core_s=50.0, left=Left(90.0, 100.0, 110.0))]})
    assert update(ledger, 10.0, [MOVING], {"b": []}).jobs[0].left == (80.0, 100.0, 120.0)
    wild = report(used_core_s=10.0, left=Left(0.0, 900.0, 1800.0), reports=2)
    found = update(ledger, 20.0, [MOVING], {"b": [wild]})
    assert found.jobs[0].left == pytest.approx((72.0, 90.0, 108.0))
    sound = Left(80.0, 85.0, 90.0)
    sure = report(used_core_s=15.0, left=sound, reports=3)
    assert update(ledger, 30.0, [MOVING], {"b": [sure]}).jobs[0].left == sound


def test_evaluations_are_those_since_the_last_round(ledger: ClusterLedger) -> None:
    one, two, three = (Evaluation(at_s, 0.5) for at_s in (1.0, 2.0, 3.0))
    first = update(ledger, 2.0, [ON_A], {"a": [report(evaluations=(one, two))]})
    second = update(ledger, 4.0, [ON_A], {"a": [report(evaluations=(one, two, three))]})
    assert first.jobs[0].evaluations == (one, two)
    assert second.jobs[0].evaluations == (three,)


def test_a_job_that_has_not_reported_is_like_others_of_its_image(ledger: ClusterLedger) -> None:
    left = Left(90.0, 100.0, 110.0)
    found = update(
        ledger, 0.0, [ON_A], {"a": [report(used_core_s=20.0, left=left)]}, desired("job", "new")
    )
    assert found.jobs[0].left == left
    assert found.queue[0].left == pytest.approx((60.0, 120.0, 240.0))


def test_the_work_of_ended_jobs_is_remembered_while_their_record_is_there(
    ledger: ClusterLedger,
) -> None:
    ended = replace(ON_A, state=RecordState.ENDED, exit_code=0)
    update(ledger, 0.0, [ON_A], {"a": [report(used_core_s=80.0)]}, desired("job", "new"))
    found = update(ledger, 10.0, [ended], {"a": []}, desired("job", "new"))
    assert found.jobs == () and found.queue[0].left == pytest.approx((40.0, 80.0, 160.0))
    assert update(ledger, 20.0, [], {"a": []}, desired("new")).queue[0].left is None
    assert ledger.jobs == {}


def test_moves_are_under_way_from_their_preparation_to_their_end(ledger: ClusterLedger) -> None:
    there = {"a": [report(pause_s=8.0)], "b": []}
    update(ledger, 0.0, [ON_A], there)
    prepared = update(ledger, 5.0, [ON_A], there, moves={"job": ("b", 5.0)})
    assert prepared.moving == (Transit("job", "a", "b", 13.0),)
    leaving = replace(ON_A, state=RecordState.LEAVING, target="b")
    under_way = (Transit("job", "a", "b", 14.0),)
    assert update(ledger, 6.0, [leaving], there).moving == under_way
    assert update(ledger, 9.0, [MOVING], {"a": [], "b": []}).moving == under_way
    arrived = Record("job", RecordState.PLACED, "b", 2, moves=1)
    assert update(ledger, 12.0, [arrived], {"b": [report()]}).moving == ()


CANNOT = [
    (Holding("job", 1, Phase.ENDED, why="denied"), True),
    (Holding("job", 1, Phase.FENCED, why="it has one of its own"), True),
    (Holding("job", 1, Phase.ENDED, exit_code=1, why="exit code 1"), False),
    (Holding("job", 1, Phase.FENCED), False),
    (Holding("job", 2, Phase.ENDED, why="denied"), False),
    (Holding("job", 1, Phase.RUNNING, why="it saved nothing"), False),
]


@pytest.mark.parametrize(("held", "barred"), CANNOT)
def test_a_node_that_could_not_start_a_job_is_not_asked_for_a_while(
    ledger: ClusterLedger, held: Holding, barred: bool
) -> None:
    update(ledger, 0.0, [ON_A], {"a": []}, held={"a": held})
    ended = replace(ON_A, state=RecordState.ENDED)
    for now_s, still in ((1.0, barred), (BARRED_S - 1, barred), (BARRED_S, False)):
        found = update(ledger, now_s, [ended], {"a": []})
        assert ("a" in found.queue[0].barred) is still


def test_a_changed_file_is_tried_everywhere_again() -> None:
    ledger, jobs = ClusterLedger(), desired("job")
    update(ledger, 0.0, [ON_A], {"a": []}, jobs, held={"a": CANNOT[0][0]})
    ended = replace(ON_A, state=RecordState.ENDED)
    assert update(ledger, 1.0, [ended], {}, jobs).queue[0].barred == {"a": "denied"}
    mended = DesiredJob(replace(jobs["job"].spec, digest="another"))
    assert update(ledger, 2.0, [ended], {}, {"job": mended}).queue[0].barred == {}


def test_a_target_that_cannot_get_the_image_is_not_asked_for_a_while(ledger: ClusterLedger) -> None:
    there = Holding("job", 1, Phase.FAILED, why="denied")
    found = update(ledger, 0.0, [ON_A], {"b": []}, held={"b": there})
    assert found.jobs[0].barred == {"b": "denied"}


def paces(**by_node: list[float]) -> list[Pace]:
    """The pace of images 0, 1, ... on each node; 0: it has not run there."""
    return [
        Pace(f"image-{index}", node, pace)
        for node, values in by_node.items()
        for index, pace in enumerate(values)
        if pace
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (paces(a=[10.0, 2.0], b=[10.0, 2.0], c=[5.0, 1.0]), {"a": 1.0, "b": 1.0, "c": 0.5}),
        (paces(a=[10.0, 2.0], b=[5.0, 1.0]), {"a": 4 / 3, "b": 2 / 3}),
        (paces(a=[10.0, 2.0], b=[10.4, 1.95], c=[9.7, 2.05]), {"a": 1.0, "b": 1.0, "c": 1.0}),
        (paces(a=[1e9, 1e9], b=[1.0, 1.0], c=[1.0, 1.0]), {"a": 10.0, "b": 1.0, "c": 1.0}),
        (paces(a=[10.0], b=[10.0], c=[5.0]), {}),
        (paces(a=[10.0, 0, 3.0], b=[0, 2.0, 0]), {}),
    ],
    ids=["slow", "by their middle", "noise", "bounded", "one image", "one node alone"],
)
def test_speeds_by_two_images_on_two_nodes(found: list[Pace], expected: dict[str, float]) -> None:
    assert speeds(found) == pytest.approx(expected)

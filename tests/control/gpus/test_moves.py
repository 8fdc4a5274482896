"""Which moves are made, and why the others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.gpus.moves import moving
from dlsched.control.gpus.placement import PlacementOptions
from dlsched.control.gpus.rebalance import Wanted
from dlsched.control.ledger.updated import State
from dlsched.model.decision import Decision
from dlsched.model.facts import CheckpointAck, GpuFact, Operation, OperationKind
from dlsched.model.spec import Bounds, Checkpoint, ContainerSpec, Limits
from dlsched.model.state import GpuView, JobState, JobView, NodeView, Progress, Snapshot
from tests.control.test_planner import planned
from tests.doubles import job_spec

SAVES = ContainerSpec(image="model:1", gpus=1, volumes=("ckpt:/ckpt",))
OPTIONS = PlacementOptions()


def node(*reserved: str) -> NodeView:
    gpus = [GpuFact(uuid, index, "A100", 8 << 30) for index, uuid in enumerate("abc")]
    views = (GpuView(gpu, reserved=gpu.uuid in reserved) for gpu in gpus)
    return NodeView(capacity_cores=4.0, cores=4.0, memory_bytes=8 << 30, gpus=tuple(views))


def job(name: str, *gpus: str, **changes: object) -> JobView:
    spec = job_spec(
        name,
        container=changes.pop("container", SAVES),
        bounds=changes.pop("bounds", Bounds()),
        checkpoint=changes.pop("checkpoint", Checkpoint("SIGUSR1", 30.0, "/ckpt/here")),
    )
    view = JobView(
        spec, JobState.RUNNING, container_id=f"id-{name}", gpus=gpus, actual=Limits(1.5, 0.5)
    )
    return replace(view, **changes)  # type: ignore[arg-type]


def snapshot(*jobs: JobView, reserved: tuple[str, ...] = ()) -> Snapshot:
    return Snapshot(cycle=1, now_s=100.0, node=node(*reserved), jobs=jobs)


def decided(**gpus: str) -> Decision:
    to = {name: tuple(filter(None, uuids.split(","))) for name, uuids in gpus.items()}
    return Decision(gpus=to, why={name: f"{name} is faster there" for name in gpus})


def test_a_policy_moves_a_job_that_saves_itself_to_where_it_is_not_yet() -> None:
    seen = State(snapshot(job("train", "a")))
    wanted = Wanted("train", ("b",), "train is faster there")
    assert moving(seen, decided(train="b"), OPTIONS) == (wanted, {})
    assert moving(seen, decided(train="a"), OPTIONS) == (None, {})


@pytest.mark.parametrize(
    ("view", "to", "why"),
    [
        (job("train", "a", checkpoint=None), "b", "the job declares no checkpoint"),
        (
            job("train", "a", checkpoint=Checkpoint("SIGUSR1", 30.0, "/work")),
            "b",
            "the job's checkpoint path /work is in no writable volume",
        ),
        (
            job("train", "a", adopted=True),
            "b",
            "the container is adopted, so dlsched may not stop it",
        ),
        (job("train", "a", state=JobState.PAUSED), "b", "it is paused"),
        (
            job(
                "train",
                "a",
                reason="updating",
                operation=Operation(OperationKind.UPDATING, "updating"),
            ),
            "b",
            "updating",
        ),
        (job("train", "a"), "b,c", "the job needs 1 GPUs, decided were b, c"),
        (job("train", "a"), "", "the job needs 1 GPUs, decided were none"),
        (job("train", "a"), "z", "there is no GPU z"),
        (job("train", "a"), "c", "no room on GPU c: reserved"),
    ],
)
def test_what_may_not_be_moved_is_told_with_the_reason(view: JobView, to: str, why: str) -> None:
    found = moving(State(snapshot(view, reserved=("c",))), decided(train=to), OPTIONS)
    assert found == (None, {"train": f"not moved: {why}"})


def test_moves_can_be_switched_off() -> None:
    options = PlacementOptions(move=False)
    found = moving(State(snapshot(job("train", "a"))), decided(train="b"), options)
    assert found == (None, {"train": "not moved: moves are switched off (gpus.move)"})


@pytest.mark.parametrize("way", ["held", "kept", "begun"])
def test_there_is_no_room_where_another_is_or_will_be(way: str) -> None:
    train, other = job("train", "a"), job("other", "b")
    seen = {
        "held": snapshot(other, train),
        "kept": snapshot(replace(other, gpus=("c",), gpus_kept=("b",)), train),
        "begun": snapshot(train),
    }[way]
    starts = [other.spec] if way == "begun" else []
    found = moving(
        State(seen, starts=starts, placements={"other": ("b",)}), decided(train="b"), OPTIONS
    )
    assert found == (None, {"train": "not moved: no room on GPU b"})


def test_two_jobs_share_where_both_fit() -> None:
    half = Bounds(floor_share=0.5)
    jobs = job("other", "b", bounds=half), job("train", "a", bounds=half)
    move, _ = moving(State(snapshot(*jobs)), decided(train="b"), OPTIONS)
    assert move is not None


def test_one_moves_at_a_time_and_what_admission_wants_comes_first() -> None:
    jobs = job("one", "a"), job("two", "b")
    wanted, notes = Wanted("two", ("c",), "makes room"), {"one": "not moved: two is being moved"}
    assert moving(State(snapshot(*jobs), move=wanted), decided(one="c"), OPTIONS) == (wanted, notes)
    moves = replace(jobs[1], state=JobState.MOVING)
    assert moving(State(snapshot(jobs[0], moves)), decided(one="c"), OPTIONS) == (None, notes)


def test_a_move_takes_the_limits_in_force_and_the_job_is_not_resized_beside() -> None:
    view = job("train", "a", bounds=Bounds(floor_share=0.4))
    wanted = {"train": Limits(3.0, 0.9)}
    to = Wanted("train", ("b",), "makes room")
    (move,) = planned(snapshot(view), wanted, {}, move=to, sources={"train": "train.yaml"})
    assert (move.container_id, move.why, move.job) == ("id-train", "makes room", "train")
    assert move.start.limits == Limits(1.5, 0.5)
    assert move.start.gpus == ("b",)
    assert move.start.source == "train.yaml"
    assert move.checkpoint == view.spec.checkpoint


@pytest.mark.parametrize(
    ("trouble", "lost", "acknowledged", "saved_before"),
    [
        ("fell off the bus", None, CheckpointAck(7, "/ckpt/here/7"), True),
        (
            None,
            "a CPU update took the container's GPU away",
            CheckpointAck(7, "/ckpt/here/7"),
            True,
        ),
        ("fell off the bus", None, None, False),
        (None, None, CheckpointAck(7, "/ckpt/here/7"), False),
    ],
)
def test_only_one_that_lost_its_gpu_and_saved_itself_before_may_leave_without_an_answer(
    trouble: str | None, lost: str | None, acknowledged: CheckpointAck | None, saved_before: bool
) -> None:
    view = job("train", "a", gpu_lost=lost, progress=Progress(checkpoint=acknowledged))
    seen = snapshot(view)
    first, *others = seen.node.gpus
    first = replace(first, fact=replace(first.fact, trouble=trouble))
    seen = replace(seen, node=replace(seen.node, gpus=(first, *others)))
    (move,) = planned(seen, {}, {}, move=Wanted("train", ("b",), "it lost its GPU"))
    assert move.saved_before is saved_before

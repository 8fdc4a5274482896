"""The agent follows orders from durable files, with the real controller beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.core.following import GRANTED_S, KEPT_S, RESERVED_S
from dlsched.cluster.core.leases import LEASE_S
from dlsched.cluster.core.records import Order, Phase, RecordState, Saved, Verb
from dlsched.control.ledger.desired import Desired
from tests.cluster.agent.played import FILE, PlayedNode
from tests.cluster.agent.world import (
    JOB,
    MOVABLE_S,
    SHARED,
    TEXT,
    World,
    arriving,
    phase,
)


def test_a_job_moves_and_goes_on_from_its_checkpoint(world: World) -> None:
    world.moves(20)
    assert (world.record.on, world.record.state) == ("b", RecordState.PLACED)
    assert world.runs_on("b") and JOB not in world.nodes["a"].engine.containers
    assert world.nodes["b"].engine.started_from == [world.nodes["a"].engine.acknowledged[JOB]]
    assert phase(world, "a") is Phase.FENCED
    assert not list(world.nodes["a"].folder.glob("cluster/*/*.tar"))


def test_a_job_moves_within_shared_storage_and_nothing_is_carried(tmp_path: Path) -> None:
    world = World(tmp_path, SHARED)
    world.moves(until=lambda: world.record.state is RecordState.MOVING)
    step = world.nodes["a"].engine.acknowledged[JOB]
    assert world.record.saved == Saved(step, "", len(str(step)), FILE)
    world.seconds(20)
    assert (world.record.on, world.record.state) == ("b", RecordState.PLACED)
    assert world.runs_on("b") and phase(world, "a") is Phase.FENCED
    assert world.nodes["b"].engine.started_from == [step]
    assert not world.nodes["b"].node.brought and world.nodes["b"].node.expected


def test_where_the_storage_is_another_one_the_job_returns(tmp_path: Path) -> None:
    world = World(tmp_path, SHARED)
    world.nodes["b"].engine.storage = {}
    world.moves(30)
    assert (world.record.on, world.record.state) == ("a", RecordState.PLACED)
    assert world.runs_on("a")
    assert world.nodes["b"].engine.started_from == [], "it never ran there"


def test_an_agent_that_is_killed_on_arrival_still_checks_shared_storage(tmp_path: Path) -> None:
    world = World(tmp_path, SHARED)
    world.nodes["b"].engine.storage = {}
    world.moves(until=lambda: phase(world, "b") is Phase.RUNNING)
    world.nodes["b"].begin()
    assert world.nodes["b"].node.expected[JOB][1] == FILE


def test_a_job_that_saves_nothing_stays_and_can_be_asked_again(world: World) -> None:
    world.nodes["a"].engine.saves = False
    world.moves(30)
    assert world.record.on == "a" and world.runs_on("a")
    world.seconds(120)
    assert phase(world, "a") is Phase.RUNNING


def test_a_job_that_ended_with_its_engine_goes_on_in_the_same_epoch(world: World) -> None:
    world.seconds(5)
    world.nodes["a"].engine.fall()
    world.seconds(20)
    assert (world.record.state, world.record.epoch) == (RecordState.PLACED, 1)
    assert world.runs_on("a")


def test_an_arrival_that_ended_with_its_engine_keeps_its_lease(world: World) -> None:
    world.nodes["b"].engine.reports = False  # so that it is not confirmed
    world.moves(20)
    assert world.runs_on("b")
    world.cut.add("b")
    world.nodes["b"].engine.fall()
    world.nodes["b"].node.start_again = lambda job: None  # type: ignore[method-assign]
    world.seconds(int(LEASE_S) + 5)
    assert phase(world, "b") is Phase.FAILED


@pytest.fixture
def cleared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[PlayedNode, bool]]:
    """By which nodes the job is cleared, and whether they keep its volume."""
    found: list[tuple[PlayedNode, bool]] = []
    clear = PlayedNode.clear

    def noted(node: PlayedNode, job: str, *, keeps: bool) -> None:
        found.append((node, keeps))
        clear(node, job, keeps=keeps)

    monkeypatch.setattr(PlayedNode, "clear", noted)
    return found


def test_what_a_moved_job_has_written_stays_when_its_file_is_removed(
    world: World, cleared: list[tuple[PlayedNode, bool]]
) -> None:
    world.moves(20)
    source, target = world.nodes["a"], world.nodes["b"]
    assert cleared[1:] == [(source.node, False)], "the first one is of its start"
    target.engine.total_steps = target.engine.containers[JOB].step + 5
    world.seconds(60)
    assert phase(world, "b") is Phase.ENDED, "its output can still be read"
    world.desired = {}
    world.seconds(5)
    assert phase(world, "b") is Phase.FENCED
    assert cleared[2:] == [(target.node, True)]
    target.begin()
    source.begin()
    assert cleared[3:] == [(target.node, True), (source.node, False)]
    # Epochs begin again once the fence is gone: not before the volume.
    target.node.brought[JOB] = Path("kept")
    world.now += KEPT_S
    world.cut = {"a", "b"}
    world.second()
    assert phase(world, "a") is None and phase(world, "b") is Phase.FENCED


def test_what_a_move_that_failed_left_on_its_target_goes(
    world: World, cleared: list[tuple[PlayedNode, bool]]
) -> None:
    world.nodes["b"].engine.breaks = True
    world.moves(30)
    assert world.record.state is RecordState.PLACED and world.runs_on("a")
    assert cleared[1:] == [(world.nodes["b"].node, False)]


def test_what_an_earlier_run_wrote_is_kept_for_the_next_one_there(
    world: World, cleared: list[tuple[PlayedNode, bool]]
) -> None:
    world.seconds(5)
    before = dict(world.desired)
    world.desired = {}
    world.seconds(5)
    world.desired = before
    world.seconds(5)
    assert world.runs_on("a") and world.record.epoch == 2
    assert [keeps for _, keeps in cleared] == [True, True, True]


CHANGED = TEXT.replace("deliver: 0.8", "deliver: 0.7")


def test_a_changed_file_changes_the_job_where_it_runs(
    world: World, cleared: list[tuple[PlayedNode, bool]]
) -> None:
    world.seconds(MOVABLE_S)
    digest = world.change(CHANGED)
    world.seconds(3)
    assert (world.record.on, world.record.epoch, world.record.digest) == ("a", 2, digest)
    own = world.nodes["a"]
    assert own.agent.scan(world.now).specs[JOB].digest == digest
    assert own.engine.started_from == [0] and len(cleared) == 1, "its start"
    world.move("b")
    world.seconds(20)
    assert world.runs_on("b") and world.record.digest == digest


def test_a_file_that_changes_while_an_arrival_is_cut_off_loses_no_step(world: World) -> None:
    world.moves(until=lambda: world.record.state is RecordState.PLACED and world.record.on == "b")
    world.cut = {"b"}
    world.seconds(60)
    world.change(CHANGED)
    world.seconds(int(LEASE_S) + 5)
    world.cut = set()
    world.seconds(30)  # `check`: it goes on from what was acknowledged
    assert world.runs_on("b") and 0 not in world.nodes["b"].engine.started_from


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: resnet\n", "resnet.yaml:1:1: image"),
        (
            TEXT.replace(f"name: {JOB}", "name: other"),
            "the job file of resnet is for another job, other",
        ),
    ],
)
def test_a_bad_job_file_is_refused(world: World, text: str, problem: str) -> None:
    assert problem in world.deliver(Order(Verb.PREPARE, "a", JOB, 1, text=text))


def test_a_checkpoint_is_for_one_node_and_ten_minutes(world: World) -> None:
    world.seconds(MOVABLE_S)
    world.nodes["b"].alive = False
    own = world.nodes["a"]
    own.agent.follow(Order(Verb.LEAVE, "a", JOB, 1, target="b"))
    own.agent.report({JOB: 1}, frozenset({"a", "b", "c"}))
    for _ in range(4):
        own.cycle()
    assert own.agent.checkpoint(JOB, 2, "b") is not None
    for job, epoch, peer in ((JOB, 2, "c"), (JOB, 1, "b"), (JOB, 3, "b"), ("other", 2, "b")):
        assert own.agent.checkpoint(job, epoch, peer) is None
    world.now += GRANTED_S + 1
    assert own.agent.checkpoint(JOB, 2, "b") is None


def test_a_job_that_is_still_being_removed_is_not_reported_as_removed(world: World) -> None:
    world.nodes["b"].engine.reports = False
    world.moves(until=lambda: world.runs_on("b"))
    world.nodes["b"].engine.removes = False
    world.deliver(Order(Verb.CLEAR, "b", JOB, 2))
    world.seconds(20)  # `check`: the job does not run on the source meanwhile
    assert world.runs_on("b") and phase(world, "b") is not Phase.FENCED
    world.nodes["b"].engine.removes = True
    world.seconds(20)
    assert phase(world, "b") is Phase.FENCED
    assert world.record.on == "a" and world.runs_on("a")


def test_what_is_still_to_be_removed_does_not_start_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.seconds(MOVABLE_S)
    world.move("b")
    with monkeypatch.context() as patched:
        patched.setattr(PlayedNode, "clear", lambda *_, **__: None)  # the engine is slow
        world.seconds(20)
        assert phase(world, "a") is Phase.FENCED
        world.deliver(Order(Verb.PREPARE, "a", JOB, 2, text=TEXT))
        world.second()
    world.nodes["a"].begin()
    assert not world.runs_on("a")


def test_room_that_lapses_lets_no_earlier_order_in(world: World) -> None:
    world.desired = {}
    world.deliver(Order(Verb.PREPARE, "b", JOB, 3, text=TEXT))
    world.second()
    world.now += RESERVED_S
    world.second()
    assert phase(world, "b") is Phase.FENCED
    assert (
        world.deliver(Order(Verb.ARRIVE, "b", JOB, 1, text=TEXT))
        == f"{JOB}: the order is refused, as this node follows a newer one (epoch 2)"
    )
    world.deliver(Order(Verb.PREPARE, "b", JOB, 3, text=TEXT))
    world.second()
    assert phase(world, "b") is Phase.PREPARED


def own_job(world: World) -> Desired:
    """The node's own folder with a job of that name."""
    return Desired({JOB: world.desired[JOB].spec}, {JOB: "own.yaml"}, claimed=(JOB,))


def test_a_file_that_appears_once_an_order_was_taken_has_to_wait(world: World) -> None:
    target = arriving(world)
    target.own = own_job(world)
    merged = target.agent.scan(world.now)
    assert (merged.specs, merged.sources) == ({}, {})
    (rejected,) = merged.rejected
    assert rejected.file == "own.yaml"
    assert rejected.problems == (
        (
            f"{JOB}: this file is not used, as the cluster has given this node a job of the same "
            "name: rename one of the two"
        ),
    )
    target.fetches.slow = False
    world.seconds(10)
    assert world.record.on == "b" and world.record.state is RecordState.PLACED
    assert world.nodes["b"].engine.started_from == [world.nodes["a"].engine.acknowledged[JOB]]


def test_a_file_that_appears_while_the_job_is_away_does_not_start(world: World) -> None:
    arriving(world)
    source = world.nodes["a"]
    source.own = own_job(world)
    world.seconds(3)
    assert phase(world, "a") is Phase.AWAY and source.engine.containers[JOB].aside
    assert source.agent.scan(world.now).specs == {}
    source.agent.follow(Order(Verb.CLEAR, "a", JOB, 1))
    assert source.agent.scan(world.now).sources == {JOB: "own.yaml"}


def test_an_order_is_not_taken_over_a_file_that_appeared_before_it(world: World) -> None:
    node, world.cut = world.nodes["a"], {"a", "b"}
    node.agent._locals = frozenset()
    order = Order(Verb.ARRIVE, "a", JOB, 1, text=TEXT)
    node.agent.follow(order)
    node.agent._locals = frozenset({JOB})  # by a scan that had begun before
    node.own = own_job(world)
    node.cycle()
    assert phase(world, "a") is Phase.FENCED, "another node may get it"
    with pytest.raises(OrderRefused, match="a has a job of its own of that name"):
        node.agent.follow(order)


def test_room_is_not_kept_for_a_job_whose_name_the_node_uses(world: World) -> None:
    world.desired, job = {}, own_job(world)
    world.deliver(Order(Verb.PREPARE, "b", JOB, 3, text=TEXT))
    world.second()
    assert phase(world, "b") is Phase.PREPARED
    world.nodes["b"].own = job
    world.second()
    assert phase(world, "b") is Phase.FENCED

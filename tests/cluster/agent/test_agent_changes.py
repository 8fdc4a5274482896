"""Files that change, and jobs that are withdrawn, in the middle of something else: no job runs
twice, and nothing that it has written is lost. `World.check` raises otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.cluster.core.leases import LEASE_S
from dlsched.cluster.core.records import Phase, RecordState, Request, Wanted
from tests.cluster.agent.world import FAILOVER, JOB, MOVABLE_S, SHARED, TEXT, World, phase


def move(world: World, target: str) -> None:
    """By hand, without the rules of rest."""
    world.store.ask(Request(Wanted.MOVE, JOB, target))


def moved_to_b(world: World) -> int:
    """It has moved there, and has worked on; its step."""
    world.seconds(MOVABLE_S)
    move(world, "b")
    world.until(lambda: world.record.moves == 1)
    world.seconds(100)
    return world.nodes["b"].engine.containers[JOB].step


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lease_counts_only_once_its_node_has_the_file(tmp_path: Path, restarts: bool) -> None:
    world = World(tmp_path, SHARED)
    world.seconds(10)
    world.change(FAILOVER)
    world.loses = set(range(len(world.sent) + 1, len(world.sent) + 100))
    world.second()
    world.cut = {"a"}
    world.store.members["a"] = replace(world.store.members["a"], up=False)
    if restarts:
        world.begin()
    world.seconds(400)
    assert world.runs_on("a") and world.record.on == "a"


def test_a_lease_that_is_withdrawn_counts_until_its_node_has_the_file(tmp_path: Path) -> None:
    world = World(tmp_path, FAILOVER)
    world.seconds(10)
    world.change(SHARED)
    world.cut = {"a"}
    world.store.members["a"] = replace(world.store.members["a"], up=False)
    world.seconds(int(LEASE_S) + 200)
    assert not world.runs_on("a"), "its agent goes by the file that it has"
    assert world.runs_on("b")


@pytest.mark.parametrize(
    "text",
    [SHARED, FAILOVER.replace("timeout: 30s", "timeout: 600s"), f"{FAILOVER}stop: {{grace: 600s}}"],
)
def test_only_what_both_files_allow_counts_until_its_node_has_said_which(
    tmp_path: Path, text: str
) -> None:
    world = World(tmp_path, FAILOVER)
    world.seconds(10)
    world.change(text)
    world.now += 1
    world.controller.round()  # the order is sent
    world.nodes["a"].cycle()  # and followed, but the node is cut off before it has said so
    world.cut = {"a"}
    world.store.members["a"] = replace(world.store.members["a"], up=False)
    world.seconds(250)
    assert world.record.on == "a", "it may run by the new file"


def test_a_comment_does_not_start_a_job_again_that_ends_before_it_comes(world: World) -> None:
    world.seconds(10)
    node = world.nodes["a"]
    node.engine.total_steps = node.engine.containers[JOB].step
    world.change(f"{TEXT}# of the vision group\n")
    world.loses = {len(world.sent) + 1}
    world.now += 1
    world.controller.round()
    world.seconds(10)
    assert (world.record.state, world.record.exit_code) == (RecordState.ENDED, 0)
    assert node.engine.started_from == [0]


@pytest.mark.parametrize("again", [False, True])
def test_what_a_job_has_written_outlives_its_withdrawal_in_a_move(
    world: World, again: bool
) -> None:
    step = moved_to_b(world)
    world.nodes["a"].fetches.slow = True
    move(world, "a")
    world.until(lambda: world.record.state is RecordState.MOVING)
    desired, world.desired = world.desired, {}
    world.seconds(3)
    assert world.nodes["b"].node.has_volume(JOB)
    if again:
        world.store.drain("a")
        world.desired = desired
        world.until(lambda: world.runs_on("b"))
        assert world.nodes["b"].engine.started_from[-1] >= step


def test_a_change_that_crosses_a_move_that_is_given_up_keeps_its_volume(world: World) -> None:
    moved_to_b(world)
    move(world, "a")
    world.until(lambda: phase(world, "b") is Phase.SAVING)
    world.cut = {"a"}  # so that the move is given up
    world.loses = {len(world.sent) + 1, len(world.sent) + 2}
    for text in ("", TEXT.replace("deliver: 0.8", "deliver: 0.81")):
        world.now += 1
        if text:
            world.change(text)
        world.controller.round()
    for _ in range(4):
        world.now += 1
        world.nodes["b"].cycle()
    world.cut = set()
    world.seconds(10)
    assert world.runs_on("b") and world.nodes["b"].engine.started_from[-1] > 0


def test_a_job_does_not_move_where_results_of_an_earlier_run_are_kept(world: World) -> None:
    moved_to_b(world)
    desired, world.desired = world.desired, {}
    world.seconds(5)
    assert world.nodes["b"].node.has_volume(JOB), "they stay"
    for node in world.nodes.values():
        node.engine.acknowledged.clear()  # another run
    world.desired = desired
    world.until(lambda: world.runs_on("a"))
    world.seconds(MOVABLE_S)
    move(world, "b")
    world.seconds(20)
    assert world.runs_on("a") and world.nodes["b"].node.has_volume(JOB)
    why = world.controller.round().requests[Request(Wanted.MOVE, JOB, "b")]
    assert "the node has volumes of an earlier run of resnet, and takes the job only without" in why

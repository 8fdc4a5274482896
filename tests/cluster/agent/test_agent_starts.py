"""A node that cannot start a job, or not yet: the image of a move, and the next node that is
tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.following import REFUSED_S, RESERVED_S
from dlsched.cluster.core.job_memory import BARRED_S
from dlsched.cluster.core.records import Phase, RecordState
from dlsched.control.ledger.desired import Desired
from tests.cluster.agent.world import JOB, World, phase

DENIED = "image training cannot be pulled: denied"


def waits(world: World) -> str:
    """Why the job is in the queue, the next time that the policy is asked."""
    for _ in range(20):
        world.now += 1.0
        answer = world.controller.round().answer
        if answer is not None and JOB in answer.why:
            return answer.why[JOB]
    return ""


def test_a_move_waits_until_its_target_has_the_image(world: World) -> None:
    world.nodes["b"].images.pull = None
    world.moves(120)
    assert world.runs_on("a"), "it works while its image is pulled"
    held = world.nodes["b"].agent.report({}, frozenset()).holdings[0]
    assert (held.phase, held.why) == (Phase.PREPARED, "pulling its image: 40 % of 2 GiB")
    world.nodes["b"].images.pull = ""
    world.seconds(20)
    assert (world.record.on, world.record.state) == ("b", RecordState.PLACED)


@pytest.mark.long
def test_a_pull_without_an_end_is_given_up(world: World) -> None:
    world.nodes["b"].images.pull = None
    world.moves(5)
    world.policy.wanted = ()
    world.seconds(2 * int(RESERVED_S) + 5)  # the last order comes just before it is given up
    assert world.runs_on("a") and phase(world, "b") is None
    assert world.record.state is RecordState.PLACED


def test_an_agent_that_is_killed_meanwhile_pulls_again(world: World) -> None:
    world.nodes["b"].images.pull = None
    world.moves(5)
    world.nodes["b"].begin()
    world.seconds(5)
    assert world.runs_on("a")
    world.nodes["b"].images.pull = ""
    world.seconds(20)
    assert world.runs_on("b")


def test_a_node_that_cannot_get_the_image_is_not_asked_again_for_a_while(world: World) -> None:
    world.nodes["b"].images.pull = DENIED
    world.moves(10)
    assert phase(world, "b") is Phase.FAILED
    world.seconds(int(REFUSED_S) + 40)
    assert phase(world, "b") is None, "it keeps no room"
    prepared = sum(order.node == "b" for order in world.sent)
    world.seconds(int(BARRED_S) - 150)
    assert world.runs_on("a") and sum(order.node == "b" for order in world.sent) == prepared


def test_a_job_that_its_node_cannot_start_is_placed_on_another_one(world: World) -> None:
    world.nodes["a"].engine.refuses = DENIED
    world.seconds(15)
    assert world.runs_on("b") and world.record.state is RecordState.PLACED
    assert phase(world, "a") is Phase.FENCED


def test_a_job_that_no_node_can_start_waits_and_says_why(world: World) -> None:
    for node in world.nodes.values():
        node.engine.refuses = DENIED
    world.seconds(20)
    assert world.record.state is RecordState.ENDED and world.record.exit_code is None
    assert waits(world) == f"fits no node: 2 nodes: {DENIED}"
    placed = world.record.epoch
    world.nodes["b"].engine.refuses = ""
    world.seconds(int(BARRED_S) + 15)
    assert world.runs_on("b") and world.record.epoch > placed


def test_a_job_that_has_run_and_fails_is_tried_nowhere_else(world: World) -> None:
    world.seconds(10)
    world.nodes["a"].engine.breaks = True
    world.seconds(10)
    assert (world.record.state, world.record.exit_code) == (RecordState.ENDED, 1)
    assert not world.runs_on("b")


def test_an_agent_that_was_killed_knows_that_the_job_has_run(world: World) -> None:
    world.seconds(10)
    node = world.nodes["a"]
    node.begin()
    node.engine.refuses = DENIED
    del node.engine.containers[JOB]  # somebody removes it, and it cannot be made again
    world.seconds(10)
    assert (world.record.state, world.record.exit_code) == (RecordState.ENDED, 1)
    assert not world.runs_on("b"), "it would begin without what it has saved"


def test_a_job_goes_past_a_node_that_has_one_of_its_name(world: World) -> None:
    own = Desired({JOB: replace(world.spec, owner=None)}, sources={JOB: "/etc/dlsched/jobs.d/x"})
    world.nodes["a"].own = own
    world.nodes["a"].engine.refuses = "the node's own job needs no container here"
    world.seconds(15)
    assert world.record.on == "b" and world.nodes["b"].engine.started_from == [0]

"""How a job begins on a node: with a checkpoint that is brought to it, once its image is there, or
not at all, and the next node that is tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.agent.fetching import KNOWN_WITHIN_S
from dlsched.cluster.core.following import REFUSED_S
from dlsched.cluster.core.job_memory import BARRED_S
from dlsched.cluster.core.leases import LEASE_S
from dlsched.cluster.core.records import Order, Phase, RecordState, Verb
from dlsched.control.ledger.desired import Desired
from tests.cluster.agent.world import (
    JOB,
    TEXT,
    World,
    arriving,
    phase,
)


@pytest.mark.parametrize(
    "order",
    [
        Order(Verb.CLEAR, "b", JOB, 2),
        Order(Verb.CLEAR, "b", JOB, 7),
        Order(Verb.ARRIVE, "b", JOB, 7, text=TEXT),
    ],
)
def test_what_is_fetched_ends_with_its_epoch(world: World, order: Order) -> None:
    target = arriving(world)
    assert target.fetches.ended == []
    (came,) = target.folder.glob("cluster/incoming/*")
    world.deliver(order)
    target.cycle()
    assert target.fetches.ended == [JOB]
    assert not came.exists()


def test_how_much_has_come_is_reported(world: World) -> None:
    target = arriving(world)
    for came in (None, 0, 5):
        target.fetches.came = came
        target.cycle()
        (held,) = target.agent.report({}, frozenset()).holdings
        assert (held.phase, held.came_bytes) == (Phase.ARRIVING, came)
    target.fetches.slow = False
    world.seconds(4)
    (held,) = target.agent.report({}, frozenset()).holdings
    assert (held.phase, held.came_bytes) == (Phase.RUNNING, None)


def test_a_source_without_an_address_is_named_and_then_given_up(world: World) -> None:
    world.nodes["b"].fetches.unknown = {"a"}
    world.moves(until=lambda: phase(world, "b") is Phase.ARRIVING)
    world.seconds(3)
    (held,) = world.nodes["b"].agent.report({}, frozenset()).holdings
    line = (
        "the address of node a, which has the job's checkpoint, is not known: no manager has "
        "reported it"
    )
    assert (held.phase, held.why) == (Phase.ARRIVING, line)
    world.seconds(int(KNOWN_WITHIN_S) + 20)
    assert world.record.on == "a" and world.runs_on("a")
    assert world.nodes["b"].engine.started_from == []


def test_a_fetch_ends_without_a_manager(world: World) -> None:
    target = arriving(world)
    world.cut = {"b"}
    world.seconds(int(LEASE_S) + 3)
    assert target.fetches.ended and not list(target.folder.glob("cluster/incoming/*"))
    target.fetches.slow = False
    world.seconds(3)
    assert not target.engine.started_from
    assert phase(world, "b") is Phase.FAILED


def test_a_checkpoint_that_was_changed_on_the_way_is_not_used(world: World) -> None:
    world.moves(until=lambda: world.record.state is RecordState.MOVING)
    for archive in world.nodes["a"].folder.glob("cluster/outgoing/*.tar"):
        archive.write_text("9")
    world.seconds(20)
    assert world.record.on == "a" and world.runs_on("a")
    assert world.nodes["b"].engine.started_from == []


def test_an_arrival_whose_confirmation_was_lost_goes_on(world: World) -> None:
    world.moves(until=lambda: world.record.on == "b" and world.record.state is RecordState.PLACED)
    world.cut = {"b"}  # its agent does not learn of it
    world.seconds(int(LEASE_S) + 3)
    assert not world.runs_on("b")
    world.cut = set()
    world.seconds(5)
    assert world.runs_on("b") and phase(world, "b") is Phase.RUNNING


def test_what_is_asked_to_leave_needs_no_more_confirmation(world: World) -> None:
    world.moves(until=lambda: world.record.on == "b" and world.record.state is RecordState.PLACED)
    world.nodes["b"].engine.saves = False
    world.deliver(Order(Verb.LEAVE, "b", JOB, 2, target="a"))
    world.cut = {"b"}
    world.seconds(int(LEASE_S) + 3)
    assert world.runs_on("b")


DENIED = "image training cannot be pulled: denied"


def test_a_move_waits_until_its_target_has_the_image(world: World) -> None:
    world.nodes["b"].images.pull = None
    world.moves(120)
    assert world.runs_on("a"), "it works while its image is pulled"
    held = world.nodes["b"].agent.report({}, frozenset()).holdings[0]
    assert (held.phase, held.why) == (Phase.PREPARED, "pulling the job's image: 40 % of 2 GiB")
    world.nodes["b"].images.pull = ""
    world.seconds(20)
    assert (world.record.on, world.record.state) == ("b", RecordState.PLACED)


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

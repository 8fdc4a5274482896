"""A job of the cluster and one of the node's own folder with the same name."""

from __future__ import annotations

import pytest

from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.core.records import Order, Phase, RecordState, Verb
from dlsched.control.ledger.desired import Desired
from tests.cluster.agent.world import (
    JOB,
    TEXT,
    World,
    arriving,
    phase,
)


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
    assert rejected.problems == (f"{JOB}: the cluster has given this node a job of that name",)
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


def test_a_name_that_the_cluster_used_here_is_the_nodes_own_again(world: World) -> None:
    world.seconds(3)
    job, world.desired = world.desired[JOB], {}
    world.seconds(5)
    assert phase(world, "a") is Phase.FENCED
    world.nodes["a"].own = Desired(specs={JOB: job.spec}, sources={JOB: "own.yaml"})
    world.second()
    problem = world.deliver(Order(Verb.ARRIVE, "a", JOB, 2, text=TEXT))
    assert problem == f"{JOB}: a has a job of its own of that name"

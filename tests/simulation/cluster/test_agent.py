"""A simulated agent follows each order once, and none that is late."""

from __future__ import annotations

from dlsched.cluster.core.records import Order, Phase, Saved, Verb
from dlsched.simulation.cluster.agent import RESERVED_S, SimulatedAgent
from dlsched.simulation.cluster.network import NetworkOptions, SimulatedAgents
from tests.simulation.cluster.test_thin import three_jobs


def agent(node: str = "left") -> tuple[SimulatedAgents, SimulatedAgent]:
    there = SimulatedAgents(three_jobs(), "none", 1, NetworkOptions(latency_s=0.0))
    return there, there.agents[node]


def order(verb: Verb, epoch: int, source: str | None = None, saved: Saved | None = None) -> Order:
    return Order(verb, "left", "first", epoch, source, saved)


def phase(there: SimulatedAgent) -> tuple[Phase, int]:
    own = there.held["first"]
    return own.phase, own.epoch


def running(epoch: int = 1) -> tuple[SimulatedAgents, SimulatedAgent]:
    cluster, one = agent()
    one.follow(order(Verb.ARRIVE, epoch), 0.0)
    for at_s in (0.0, 1.0, 5.0):
        cluster.run_until(at_s)
    assert phase(one) == (Phase.RUNNING, epoch)
    assert cluster.nodes["left"].runtime.present() == {"first": True}
    return cluster, one


def test_the_same_order_twice_does_nothing_the_second_time() -> None:
    cluster, one = running()
    one.follow(order(Verb.LEAVE, 1), 6.0)
    due_s = one.held["first"].due_s
    one.follow(order(Verb.LEAVE, 1), 7.0)
    assert one.held["first"].due_s == due_s
    for at_s in (7.0, 10.0, 10.1):
        cluster.run_until(at_s)
    assert phase(one) == (Phase.AWAY, 1)
    one.follow(order(Verb.LEAVE, 1), 11.0)
    one.follow(order(Verb.ARRIVE, 1), 11.0)
    assert phase(one) == (Phase.AWAY, 1)


def test_room_is_kept_for_a_while() -> None:
    _, one = agent()
    one.follow(order(Verb.PREPARE, 1), 0.0)
    one.step(RESERVED_S - 1.0)
    assert phase(one) == (Phase.PREPARED, 1)
    one.step(RESERVED_S)
    assert one.held == {}


def test_other_bytes_than_those_of_the_record_are_not_started() -> None:
    cluster, one = agent()
    _, source = cluster, cluster.agents["right"]
    source.follow(Order(Verb.ARRIVE, "right", "first", 1), 0.0)
    for at_s in (0.0, 1.0, 5.0):
        cluster.run_until(at_s)
    source.follow(Order(Verb.LEAVE, "right", "first", 1), 5.0)
    for at_s in (8.0, 9.0):
        cluster.run_until(at_s)
    saved = source.held["first"].saved
    assert saved is not None and source.keeps("first", 2) is not None
    one.follow(order(Verb.ARRIVE, 2, "right", Saved(saved.step, "another", 0)), 9.0)
    cluster.run_until(10.0)
    assert phase(one) == (Phase.FAILED, 2)

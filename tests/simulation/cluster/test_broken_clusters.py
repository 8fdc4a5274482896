"""A cluster whose code is broken violates its invariants, and the run says so."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dlsched.cluster.controller import ClusterController
from dlsched.cluster.core import following
from dlsched.cluster.core.ledger import ClusterFacts, ClusterLedger
from dlsched.cluster.core.records import Order, Phase, Record, RecordState, Verb
from dlsched.cluster.store import MemoryStore
from dlsched.simulation.cluster import agent as agents
from dlsched.simulation.cluster.agent import SimulatedAgent
from dlsched.simulation.cluster.invariants import STARTS_S, BrokenInvariant
from dlsched.simulation.cluster.run import SimulatedCluster
from tests.simulation.cluster.test_moves import cluster, left_fails
from tests.simulation.cluster.test_thin import three_jobs

Broken = Callable[[pytest.MonkeyPatch], SimulatedCluster]


def moving(**changes: object) -> SimulatedCluster:
    """One job moves at 60 s."""
    return cluster(replace(three_jobs(), **changes))  # type: ignore[arg-type]


def withdrawn(at_s: float) -> SimulatedCluster:
    """The job that moves at 60 s is withdrawn then."""
    jobs = three_jobs().jobs
    return moving(jobs=(replace(jobs[0], leaves_s=at_s), *jobs[1:]))


def the_new_one_starts_before_the_old_one_has_ended(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    there = moving()
    right = there.agents.agents["right"]

    def prepare(agent: SimulatedAgent, order: Order, own: object, now_s: float) -> None:
        right.node.assign(right.node.jobs[order.job].spec)

    patch.setitem(agents._FOLLOW, Verb.PREPARE, prepare)
    return there


def the_source_drops_what_it_saved(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    patch.setattr(SimulatedAgent, "keeps", lambda *_: None)
    return moving()


def the_target_starts_without_the_checkpoint(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    start = SimulatedAgent._start
    patch.setattr(SimulatedAgent, "_start", lambda self, job, own, _: start(self, job, own, None))
    return moving()


def orders_go_out_before_their_record(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    write = ClusterController._write

    def late(self: ClusterController, record: Record, stored: Any, report: Any) -> bool:
        return record.state is RecordState.LEAVING or write(self, record, stored, report)

    patch.setattr(ClusterController, "_write", late)
    return moving()


def a_job_is_forgotten_in_the_queue(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    update = ClusterLedger.update

    def without(self: ClusterLedger, facts: ClusterFacts, moves: Any, waits: Any) -> Any:
        snapshot = update(self, facts, moves, waits)
        return replace(snapshot, queue=tuple(one for one in snapshot.queue if one.name != "second"))

    patch.setattr(ClusterLedger, "update", without)
    return moving()


def two_controllers_write_over_each_other(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    patch.setattr(MemoryStore, "_check", lambda *_: None)
    return doubled()


def doubled() -> SimulatedCluster:
    """Another controller has a whole round before each move is committed."""

    class Racing(MemoryStore):
        races = False

        def put(self, record: Record, version: int | None) -> int:
            if record.state is RecordState.LEAVING and not self.races:
                self.races = True
                other.round()
            return super().put(record, version)

    store = Racing((), leader="manager")
    there = cluster(store=store)
    other = there.controller
    there.start_controller()
    return there


def late_orders_are_followed(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    patch.setattr(following, "is_overtaken", lambda *_: False)
    there = moving()
    heapq.heappush(there.agents._sent, (100.0, 1000, Order(Verb.CLEAR, "right", "first", 1)))
    return there


def a_node_that_is_cut_off_starts_a_job_again(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    step = SimulatedAgent.step

    def again(self: SimulatedAgent, now_s: float) -> None:
        step(self, now_s)
        for own in self.held.values():
            if own.phase is Phase.AWAY and now_s > own.since_s + 5.0:
                own.phase = Phase.RUNNING

    patch.setattr(SimulatedAgent, "step", again)
    return left_fails("cut")


def a_move_wins_over_a_withdrawal(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    patch.setattr(ClusterFacts, "is_gone", lambda *_: False)
    return withdrawn(62.0)


def what_was_removed_starts_by_itself(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    step = SimulatedAgent.step

    def again(self: SimulatedAgent, now_s: float) -> None:
        step(self, now_s)
        for job, own in self.held.items():
            if own.phase is Phase.FENCED and now_s > own.since_s + STARTS_S + 5.0:
                self.node.assign(self.node.jobs[job].spec)

    patch.setattr(SimulatedAgent, "step", again)
    return withdrawn(50.0)


BROKEN: dict[Broken, str] = {
    the_new_one_starts_before_the_old_one_has_ended: "I1 .*: first on left runs on right",
    the_source_drops_what_it_saved: "I2 .*: first on left is no longer kept",
    the_target_starts_without_the_checkpoint: "I2 .*: first on right goes on from step ",
    orders_go_out_before_their_record: "I3 .*: first on left has leave 1 for .*placed",
    a_job_is_forgotten_in_the_queue: "I3 .*: second has no owner",
    two_controllers_write_over_each_other: "I4 .*: first on .* was written over version",
    late_orders_are_followed: "I4 .*: first on right follows clear 1, knows epoch 2",
    a_node_that_is_cut_off_starts_a_job_again: "I5 .*: first on left is .*, was away",
    a_move_wins_over_a_withdrawal: "I6 .*: first on .* is withdrawn and is ",
    what_was_removed_starts_by_itself: "I6 .*: first on left starts, was withdrawn at 50",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__)
def test_what_is_broken_is_found(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    there = broken(monkeypatch)
    with pytest.raises(BrokenInvariant, match=BROKEN[broken]):
        there.run()


def test_of_two_controllers_that_race_one_wins() -> None:
    there = doubled()
    run = there.run()
    assert run.moves == 1 and any("no longer the present one" in one for one in run.alarms)

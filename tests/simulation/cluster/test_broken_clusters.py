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
from dlsched.cluster.core.records import Order, Record, RecordState, Verb
from dlsched.cluster.store import MemoryStore
from dlsched.simulation.cluster.agent import SimulatedAgent
from dlsched.simulation.cluster.invariants import BrokenInvariant
from dlsched.simulation.cluster.run import SimulatedCluster
from tests.simulation.cluster.test_moves import cluster
from tests.simulation.cluster.test_thin import three_jobs

Broken = Callable[[pytest.MonkeyPatch], SimulatedCluster]


def moving(**changes: object) -> SimulatedCluster:
    """One job moves at 60 s."""
    return cluster(replace(three_jobs(), **changes))  # type: ignore[arg-type]


def the_source_drops_what_it_saved(patch: pytest.MonkeyPatch) -> SimulatedCluster:
    patch.setattr(SimulatedAgent, "keeps", lambda *_: None)
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


BROKEN: dict[Broken, str] = {
    the_source_drops_what_it_saved: "I2 .*: first on left is no longer kept",
    orders_go_out_before_their_record: "I3 .*: first on left has leave 1 for .*placed",
    a_job_is_forgotten_in_the_queue: "I3 .*: second has no owner",
    two_controllers_write_over_each_other: "I4 .*: first on .* was written over version",
    late_orders_are_followed: "I4 .*: first on right follows clear 1, knows epoch 2",
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

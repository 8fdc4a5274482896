"""A controller that dies changes no outcome: the next one goes on from the store alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.store import MemoryStore, StoreError
from dlsched.simulation.cluster.invariants import Invariants, Moment
from dlsched.simulation.cluster.run import ClusterRun, SimulatedCluster
from tests.lanes import but_the_first_long
from tests.simulation.cluster.test_moves import cluster as made
from tests.simulation.cluster.test_thin import completion_s, went_well

WRITES = 9
"""Of a run with one move: three placements, two to commit the move, one of its end, three exits."""


class ControllerDied(Exception):
    pass


class DeadlyStore(MemoryStore):
    """A store whose writer dies at one of its writes."""

    def __init__(self, at_write: int, *, committed: bool) -> None:
        super().__init__((), leader="manager")
        self._left = at_write
        self._committed = committed

    def put(self, record: Record, version: int | None) -> int:
        self._left -= 1
        if self._left == 0 and not self._committed:
            raise ControllerDied
        found = super().put(record, version)
        if self._left == 0:
            raise ControllerDied
        return found


def survive(cluster: SimulatedCluster) -> ClusterRun:
    while True:
        try:
            return cluster.run()
        except ControllerDied:
            cluster.start_controller()


def test_a_run_has_that_many_writes() -> None:
    assert made().run().writes == WRITES


@pytest.mark.parametrize("committed", but_the_first_long([True, False]))
@pytest.mark.parametrize("at_write", range(1, WRITES + 1))
def test_the_next_controller_goes_on(at_write: int, committed: bool) -> None:
    undisturbed = made()
    expected = undisturbed.run()
    store = DeadlyStore(at_write, committed=committed)
    cluster = made(store=store)
    run = survive(cluster)
    assert went_well(run)
    assert run.nodes == expected.nodes
    assert run.moves == expected.moves
    for job in ("first", "second", "third"):
        assert completion_s(run, job) == pytest.approx(completion_s(expected, job), abs=3.0)
        assert store.records()[job].record == undisturbed.store.records()[job].record


class AwayStore(MemoryStore):
    """A store that does not answer for a while."""

    def __init__(self) -> None:
        super().__init__((), leader="manager")
        self.away = 0

    def put(self, record: Record, version: int | None) -> int:
        if record.state is RecordState.MOVING and self.away < 5:
            self.away += 1
            raise StoreError("no quorum")
        return super().put(record, version)


def test_without_the_store_nothing_goes_on_and_then_everything() -> None:
    store = AwayStore()
    cluster = made(store=store)
    run = cluster.run()
    assert store.away == 5
    assert (went_well(run), run.moves) == (True, 1)
    assert "the store: no quorum" in run.alarms


class ForgettingStore(DeadlyStore):
    """A store that is lost together with its writer, with all records."""

    lost: Callable[[], None]

    def put(self, record: Record, version: int | None) -> int:
        try:
            return super().put(record, version)
        except ControllerDied:
            for job, one in self.records().items():
                self.remove(job, one.version)
            self.lost()
            raise


class WhileKnown(Invariants):
    """Nothing to compare with while the store has no record at all; nothing is ordered then."""

    def check(self, now: Moment) -> None:
        if now.records:
            super().check(now)


@pytest.mark.parametrize("committed", but_the_first_long([True, False]))
@pytest.mark.parametrize("at_write", range(1, WRITES + 1))
def test_records_that_the_store_has_lost_come_back_from_the_nodes(
    at_write: int, committed: bool
) -> None:
    store = ForgettingStore(at_write, committed=committed)
    cluster = made(store=store)
    cluster.invariants = WhileKnown()
    store.lost = cluster.invariants.begin_again
    run = survive(cluster)
    assert went_well(run)
    assert len(store.records()) == 3

"""Single rounds of the cluster's controller, against a store and agents that are plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dlsched.cluster.controller import (
    BUSY_S,
    KEPT_S,
    LEASE_S,
    PREPARE_S,
    ClusterController,
    ClusterPorts,
)
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.ledger import ClusterLedger
from dlsched.cluster.core.model import ClusterDecision, ClusterMemory, ClusterSnapshot, Left, Move
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.records import Holding, Order, Phase, Record, RecordState, Verb
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.store import Member, MemoryStore, NotStorable
from dlsched.model.spec import ContainerSpec, JobSpec


class Moves(SpreadPolicy):
    """Spread, and one move whenever it is asked."""

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        decision = super().decide(snapshot, memory)
        moves = tuple(Move(job.name, "b") for job in snapshot.jobs if job.node == "a")
        return replace(decision, moves=moves[:1])


class World:
    """A store, agents and desired jobs that a test sets."""

    def __init__(self, policy: SpreadPolicy | None = None) -> None:
        self.store = MemoryStore([Member("a"), Member("b")], leader="me")
        self.now = 0.0
        self.jobs: dict[str, DesiredJob] = {}
        self.unreadable: set[str] = set()
        self.holdings: dict[str, list[Holding]] = {"a": [], "b": []}
        self.left = Left(400.0, 500.0, 600.0)
        self.orders: list[Order] = []
        self.written_when_ordered: list[dict[str, Record]] = []
        self.confirmed: dict[str, Mapping[str, int]] = {}
        decider = ClusterDecider("test", policy or SpreadPolicy(SpreadParameters()))
        ports = ClusterPorts(self.store, self, self, self)
        self.controller = ClusterController("me", ports, ClusterLedger(), decider)

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        self.confirmed[node] = placed
        if node not in self.holdings:
            return None
        held = self.holdings[node]
        jobs = [
            JobReport(one.job, 1.0, 100.0, 100, 9, self.left, 1.0, pause_s=8.0)
            for one in held
            if one.phase is Phase.RUNNING
        ]
        return NodeReport(node, 8.0, holdings=tuple(held), jobs=tuple(jobs))

    def send(self, order: Order) -> None:
        self.orders.append(order)
        self.written_when_ordered.append(self.records)

    def scan(self, now_s: float) -> Mapping[str, DesiredJob]:
        return self.jobs

    def unread(self) -> set[str]:
        return self.unreadable

    def now_s(self) -> float:
        return self.now

    @property
    def records(self) -> dict[str, Record]:
        return {job: one.record for job, one in self.store.records().items()}

    def want(self, *names: str, digest: str = "one") -> None:
        spec = JobSpec("", ContainerSpec("image"), digest=digest)
        self.jobs = {name: DesiredJob(replace(spec, name=name)) for name in names}

    def round(self, after_s: float = 10.0) -> list[tuple[Verb, str]]:
        """The orders of the next round."""
        self.now += after_s
        self.orders.clear()
        self.written_when_ordered.clear()
        self.last = self.controller.round()
        return [(one.verb, one.node) for one in self.orders]


def running(world: World) -> None:
    """The job runs on a."""
    world.want("job")
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100)]
    assert world.round() in ([], [(Verb.PREPARE, "b")])


def test_a_record_is_committed_before_its_order() -> None:
    world = World()
    world.want("job")
    assert world.round() == [(Verb.ARRIVE, "a")]
    assert world.written_when_ordered[0]["job"].on == "a"


def test_an_order_is_sent_again_until_its_effect_shows() -> None:
    world = World()
    world.want("job")
    assert [world.round() for _ in range(3)] == [[(Verb.ARRIVE, "a")]] * 3
    world.holdings["a"] = [Holding("job", 1, Phase.ARRIVING)]
    assert world.round() == []


def test_a_request_for_a_report_confirms_what_is_placed_there() -> None:
    world = World()
    running(world)
    assert world.confirmed == {"a": {"job": 1}, "b": {}}


def test_a_move_waits_for_room_and_is_dropped_without() -> None:
    world = World(Moves(SpreadParameters()))
    running(world)
    assert world.last.next_s == BUSY_S
    assert world.round(PREPARE_S - 5.0) == [(Verb.PREPARE, "b")]
    assert world.round(10.0) == []
    assert world.records["job"].state is RecordState.PLACED


def test_a_move_begins_once_there_is_room() -> None:
    world = World(Moves(SpreadParameters()))
    running(world)
    world.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    assert world.round(1.0) == [(Verb.LEAVE, "a")]
    assert world.records["job"].target == "b"


def test_a_changed_file_ends_the_job_and_places_it_again() -> None:
    world = World()
    running(world)
    world.want("job", digest="two")
    assert world.round() == [(Verb.CLEAR, "a")]
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    assert world.round() == [(Verb.ARRIVE, "a")]
    found = world.records["job"]
    assert (found.state, found.epoch, found.digest) == (RecordState.PLACED, 2, "two")


def test_a_job_that_ended_is_placed_again_only_after_its_file_was_away() -> None:
    world = World()
    running(world)
    world.holdings["a"] = [Holding("job", 1, Phase.ENDED, exit_code=0)]
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    assert world.round() == [] and world.records["job"].exit_code == 0
    world.jobs = {}
    world.round()
    world.want("job")
    assert world.round() == [(Verb.ARRIVE, "a")]
    assert world.records["job"].epoch == 2


def test_a_record_is_removed_a_day_after_its_job_is_gone() -> None:
    world = World()
    running(world)
    world.jobs = {}
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    world.round()
    world.round(KEPT_S - 100.0)
    assert "job" in world.records
    world.round(200.0)
    assert world.records == {}


def test_a_stale_write_sends_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    running(world)
    other = Record("job", RecordState.PLACED, "b", 5, "one")
    there = world.store.records()
    world.store.put(other, there["job"].version)
    # What it has read is older than what another controller has written meanwhile.
    monkeypatch.setattr(world.store, "records", lambda: there)
    world.holdings["a"] = [Holding("job", 1, Phase.ENDED, exit_code=0)]
    assert world.round() == []
    assert "no longer the present one" in world.last.alarms[0]
    monkeypatch.undo()
    assert world.records["job"] == other


def test_a_policy_that_fails_stops_no_record_from_going_on() -> None:
    class Fails(SpreadPolicy):
        def decide(self, *_: object) -> ClusterDecision:
            raise ValueError("no idea")

    world = World(Fails(SpreadParameters()))
    world.want("job")
    assert world.round() == [(Verb.ARRIVE, "a")]
    assert world.last.alarms == ["policy test: the cluster policy failed: ValueError: no idea"]


def test_a_job_whose_file_cannot_be_read_is_not_ended() -> None:
    world = World()
    running(world)
    world.jobs, world.unreadable = {}, {"job"}
    assert world.round() == []
    assert world.records["job"].state is RecordState.PLACED
    world.unreadable = set()
    world.round()
    assert world.records["job"].state is RecordState.ENDED


def test_no_order_is_sent_without_the_file_that_it_needs() -> None:
    world = World()
    world.want("job")
    assert world.round() == [(Verb.ARRIVE, "a")]
    world.jobs, world.unreadable = {}, {"job"}
    assert world.round() == []
    world.want("job")
    assert world.round() == [(Verb.ARRIVE, "a")]


def test_the_record_of_an_unread_job_is_not_forgotten() -> None:
    world = World()
    running(world)
    world.holdings["a"] = [Holding("job", 1, Phase.ENDED, exit_code=0)]
    world.round()
    world.jobs, world.unreadable = {}, {"job"}
    world.round(KEPT_S + 1)
    world.round()
    assert world.records["job"].exit_code == 0


def test_a_node_that_answered_another_leader_is_not_taken_for_gone() -> None:
    world = World()
    running(world)
    undoing = replace(world.records["job"], state=RecordState.UNDOING, on="b", source="a", epoch=2)
    version = world.store.put(undoing, world.store.records()["job"].version)
    world.store.leading = "other"
    world.round(1000.0)
    world.store.leading = "me"
    world.store.members["b"] = Member("b", up=False)
    del world.holdings["b"]
    world.round()
    world.round(LEASE_S - 1.0)
    assert world.store.records()["job"].version == version
    world.round(2.0)
    assert world.records["job"].state is RecordState.RETURNING


def test_what_one_node_reports_stops_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.want("bad", "good")
    world.round()
    world.holdings["a"] = [Holding("bad", 1, Phase.ENDED, exit_code=1 << 40)]
    world.holdings["b"] = [Holding("good", 1, Phase.ENDED, exit_code=0)]
    put = world.store.put

    def bounded(record: Record, version: int | None) -> int:
        if record.exit_code == 1 << 40:
            raise NotStorable("bad: label exit_code")
        return put(record, version)

    monkeypatch.setattr(world.store, "put", bounded)
    world.round()
    assert world.records["good"].state is RecordState.ENDED
    assert world.last.alarms == ["the store: bad: label exit_code"]

"""Single rounds of the cluster's controller, against a store and agents that are plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dlsched.cluster.controller import (
    BUSY_S,
    KEPT_S,
    PREPARE_S,
    ClusterController,
    ClusterPorts,
)
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.leases import LEASE_S, MARGIN_S, leased, over_s
from dlsched.cluster.core.ledger import ClusterLedger
from dlsched.cluster.core.model import ClusterDecision, ClusterMemory, ClusterSnapshot, Left, Move
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.records import (
    Holding,
    Order,
    Phase,
    Record,
    RecordState,
    Request,
    Saved,
    Verb,
    Wanted,
    file_version,
)
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.requests import REQUEST_S
from dlsched.cluster.store import Member, MemoryStore, NotStorable
from dlsched.model.spec import ContainerSpec, JobSpec

SPEC = JobSpec("", ContainerSpec("image"))


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
        self.unmovable: str | None = None
        self._policy = policy or SpreadPolicy(SpreadParameters())
        self.start_controller()

    def start_controller(self) -> None:
        """A controller that knows nothing yet."""
        decider = ClusterDecider("test", self._policy)
        ports = ClusterPorts(self.store, self, self, self)
        self.controller = ClusterController("me", ports, ClusterLedger(), decider)

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        self.confirmed[node] = placed
        if node not in self.holdings:
            return None
        held = self.holdings[node]
        jobs = [
            JobReport(one.job, 1.0, 100.0, 100, 9, self.left, 1.0, (), self.unmovable, 8.0)
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

    def want(self, *names: str, digest: str = "one", text: str = "") -> None:
        spec = replace(SPEC, digest=digest)
        self.jobs = {name: DesiredJob(replace(spec, name=name), text=text) for name in names}

    def round(self, after_s: float = 10.0) -> list[tuple[Verb, str]]:
        """The orders of the next round."""
        self.now += after_s
        self.orders.clear()
        self.written_when_ordered.clear()
        self.last = self.controller.round()
        return [(one.verb, one.node) for one in self.orders]


def running(world: World, file: str = "") -> None:
    """The job runs on a, by that file."""
    world.want("job", text=file)
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100, file=file_version(file))]
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


def test_a_changed_file_changes_the_job_on_its_node() -> None:
    world = World()
    running(world, file="one")
    world.want("job", digest="two", text="two")
    assert world.round() == [(Verb.ARRIVE, "a")]
    found = world.records["job"]
    assert (found.state, found.on, found.epoch) == (RecordState.PLACED, "a", 2)
    assert (found.digest, found.first) == ("one", 2), "its node has not said that it has the file"
    assert world.round() == [(Verb.ARRIVE, "a")]
    world.holdings["a"] = [Holding("job", 2, Phase.RUNNING, 100, file=file_version("two"))]
    assert world.round() == []
    assert world.records["job"] == replace(found, digest="two")


def test_a_changed_file_that_is_the_same_job_reaches_its_node_too() -> None:
    world = World()
    running(world, file="one")
    world.want("job", text="name: job\nmetrics: {preset: another}")
    assert world.round() == [(Verb.ARRIVE, "a")]
    assert world.orders[0].text == world.jobs["job"].text


def test_a_job_that_ends_by_its_changed_file_does_not_run_again() -> None:
    world = World()
    running(world, file="one")
    world.want("job", digest="two", text="two")
    world.round()
    world.holdings["a"] = [Holding("job", 2, Phase.ENDED, exit_code=0, file=file_version("two"))]
    for _ in range(3):
        world.round()
        found = world.records["job"]
        assert (found.state, found.digest, found.exit_code) == (RecordState.ENDED, "two", 0)


def test_a_file_that_changes_during_a_move_waits_for_its_end() -> None:
    world = World(Moves(SpreadParameters()))
    running(world)
    world.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    world.round()
    assert world.records["job"].state is RecordState.LEAVING
    world.want("job", digest="two", text="two")
    world.round()
    assert (world.records["job"].state, world.records["job"].digest) == (RecordState.LEAVING, "one")


def test_the_output_of_a_job_that_ended_stays_until_its_file_is_removed() -> None:
    world = World()
    running(world)
    world.holdings["a"] = [Holding("job", 1, Phase.ENDED, exit_code=0)]
    assert world.round() == [] and world.round() == []
    world.jobs = {}
    assert world.round() == [(Verb.CLEAR, "a")]


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
    world.round(over_s(world.records["job"]) - 1.0)
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


# ------------------------------------------------------------------ requests of people


def test_a_pause_holds_placements_and_moves() -> None:
    world = World(Moves(SpreadParameters()))
    running(world)
    world.store.ask(Request(Wanted.PAUSE))
    world.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    world.want("job", "late")
    assert world.round() == []
    assert world.last.paused
    assert world.records.keys() == {"job"}
    assert world.records["job"].state is RecordState.PLACED
    world.store.done(Request(Wanted.PAUSE))
    world.round()
    assert "late" in world.records


def test_a_move_under_way_goes_on_in_a_pause() -> None:
    world = World(Moves(SpreadParameters()))
    running(world)
    world.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    world.round(1.0)
    world.store.ask(Request(Wanted.PAUSE))
    world.holdings["a"] = [Holding("job", 1, Phase.AWAY, saved=Saved(100))]
    world.round(1.0)
    assert world.records["job"].state is RecordState.MOVING


def test_a_move_by_hand_needs_no_gain_and_no_rest() -> None:
    world = World()
    running(world)
    # Nothing is left of it, so that no policy could move it.
    world.left = Left(0.0, 1.0, 2.0)
    world.store.ask(Request(Wanted.MOVE, "job", "b"))
    assert world.round() == [(Verb.PREPARE, "b")]
    assert list(world.last.requests.values()) == ["b makes room for it"]
    world.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    assert world.round(1.0) == [(Verb.LEAVE, "a")]
    assert world.store.requests() == [Request(Wanted.MOVE, "job", "b")]
    world.round(1.0)
    assert world.last.done == {Request(Wanted.MOVE, "job", "b"): "job moves to b"}
    assert world.store.requests() == []


def test_a_move_by_hand_is_taken_up_by_the_next_controller() -> None:
    world = World()
    running(world)
    world.store.ask(Request(Wanted.MOVE, "job", "b"))
    world.round()
    world.start_controller()
    assert world.round(1.0) == [(Verb.PREPARE, "b")]


@pytest.mark.parametrize(
    ("target", "unmovable", "draining", "why"),
    [
        ("b", "it declares no checkpoint", False, "it cannot be moved: it declares no checkpoint"),
        ("c", None, False, "there is no such node"),
        ("b", None, True, "it drains"),
    ],
)
def test_a_move_by_hand_obeys_the_rules_of_safety(
    target: str, unmovable: str | None, draining: bool, why: str
) -> None:
    world = World()
    running(world)
    world.unmovable = unmovable
    if draining:
        world.store.drain("b")
    request = Request(Wanted.MOVE, "job", target)
    world.store.ask(request)
    assert world.round() == []
    assert why in world.last.requests[request]
    assert world.round(REQUEST_S) == []
    assert why in world.last.done[request]
    assert world.store.requests() == []
    assert world.records["job"].state is RecordState.PLACED


def test_a_move_by_hand_waits_for_the_end_of_a_pause() -> None:
    world = World()
    running(world)
    request = Request(Wanted.MOVE, "job", "b")
    world.store.ask(Request(Wanted.PAUSE))
    world.store.ask(request)
    for _ in range(2):
        assert world.round(REQUEST_S) == []
        assert world.last.requests[request] == "the cluster is paused"
    world.store.done(Request(Wanted.PAUSE))
    assert world.round() == [(Verb.PREPARE, "b")]


def test_the_jobs_of_a_forgotten_node_start_elsewhere_under_a_new_epoch() -> None:
    world = World()
    running(world)
    del world.holdings["a"]
    world.store.members["a"] = Member("a", up=False)
    world.round(60.0)
    assert world.records["job"].on == "a"
    world.store.ask(Request(Wanted.FORGET, "a"))
    world.round()
    assert world.records["job"].why == "its node was declared off"
    assert world.round() == [(Verb.ARRIVE, "b")]
    assert (world.records["job"].on, world.records["job"].epoch) == ("b", 2)
    # It was not off for good: it ends what it has, and counts again.
    world.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100)]
    world.store.members["a"] = Member("a")
    assert (Verb.CLEAR, "a") in world.round()
    assert world.last.done == {Request(Wanted.FORGET, "a"): "a is not off: it answers"}


def test_the_request_to_forget_a_node_that_has_left_the_swarm_comes_to_an_end() -> None:
    world = World()
    running(world)
    del world.holdings["a"], world.store.members["a"]
    request = Request(Wanted.FORGET, "a")
    world.store.ask(request)
    world.round()
    assert world.last.requests.keys() == {request}, "its job is still there"
    world.round()
    assert world.records["job"].on == "b"
    assert world.last.done == {request: "a is no longer a member, and no job needs it"}
    assert world.store.requests() == []


def test_a_node_that_answers_is_not_forgotten() -> None:
    world = World()
    running(world)
    world.store.ask(Request(Wanted.FORGET, "a"))
    world.round()
    assert world.last.forgotten == frozenset()
    assert (world.records["job"].state, world.records["job"].on) == (RecordState.PLACED, "a")
    assert world.store.requests() == []


def test_lost_records_come_back_from_the_nodes_once_all_have_answered() -> None:
    world = World()
    world.want("job", "new")
    world.holdings["a"] = [Holding("job", 5, Phase.RUNNING, 100)]
    b = world.holdings.pop("b")
    for _ in range(3):
        assert world.round() == []
        assert world.records == {}, "b may hold them, too"
        assert "job has no record, and is on a: waiting for what b may" in world.last.alarms[0]
    world.holdings["b"] = b
    assert world.round() == []
    assert (world.records["job"].on, world.records["job"].epoch) == ("a", 5)
    assert (Verb.ARRIVE, "b") in world.round()
    assert world.records["new"].epoch == 1
    assert world.last.alarms == []


def test_a_node_that_stays_silent_does_not_hold_up_lost_records_for_ever() -> None:
    world = World()
    world.want("job")
    world.holdings = {"a": [Holding("job", 5, Phase.RUNNING, 100)]}
    world.round()
    world.round(LEASE_S + MARGIN_S + 1.0)
    assert world.records["job"].on == "a"
    # It is back, and has run a job of which only it knew.
    world.holdings["b"] = [Holding("job", 6, Phase.RUNNING, 900)]
    assert (Verb.CLEAR, "b") not in world.round()
    assert "b runs it at epoch 6" in world.last.alarms[0]


def test_without_any_holding_an_empty_store_is_a_new_cluster() -> None:
    world = World()
    world.want("job")
    b = world.holdings.pop("b")
    assert world.round() == [] and world.records == {}
    limit_s = LEASE_S + MARGIN_S
    waits = f"it waits for what b may hold of it, at most {limit_s:.0f} s"
    assert (world.last.waits, world.last.alarms) == ({"job": waits}, [])
    assert world.last.next_s == BUSY_S
    world.round(limit_s)
    assert world.records == {}
    assert world.round() == [(Verb.ARRIVE, "a")], "b is silent for longer"
    assert world.last.waits == {}

    world = World()
    world.want("job")
    world.holdings = {"a": []}
    world.round()
    world.holdings["b"] = b
    assert world.round() == [(Verb.ARRIVE, "a")]


def test_a_job_that_is_desired_later_than_others_comes_back_from_its_node_too() -> None:
    world = World()
    world.want("first")
    world.round()
    world.holdings["b"] = [Holding("job", 7, Phase.RUNNING, 100)]
    world.want("first", "job")
    world.round()
    assert (world.records["job"].on, world.records["job"].epoch) == ("b", 7)


def test_an_epoch_is_above_all_that_a_node_knows() -> None:
    world = World()
    world.holdings["b"] = [Holding("job", 5, Phase.FENCED)]
    world.want("job")
    assert world.round() == [(Verb.ARRIVE, "a")]
    assert world.records["job"].epoch == 6


def test_a_withdrawn_job_starts_nowhere_while_it_may_still_run() -> None:
    world = World()
    running(world)
    held = world.holdings.pop("a")
    world.jobs = {}
    world.round()
    world.want("job")
    assert world.round() == []
    why = "a does not answer, and may still run it: is dlsched running there?"
    assert world.last.waits == {"job": why}
    world.holdings["a"] = held
    assert world.round() == [(Verb.CLEAR, "a")]
    assert world.last.waits == {"job": "it is still being ended on a"}
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    assert world.round() == [(Verb.ARRIVE, "a")]
    assert world.last.waits == {}


def test_a_withdrawn_job_whose_node_was_declared_off_starts_elsewhere() -> None:
    world = World()
    running(world)
    del world.holdings["a"]
    world.store.members["a"] = Member("a", up=False)
    world.jobs = {}
    world.round()
    world.want("job")
    world.round()
    assert world.last.waits.keys() == {"job"}
    world.store.ask(Request(Wanted.FORGET, "a"))
    world.round(60.0)
    assert world.records["job"].on == "b" and world.last.waits == {}


def test_a_record_stays_until_its_node_has_answered() -> None:
    world = World()
    running(world)
    held = world.holdings.pop("a")
    world.jobs = {}
    world.round()
    world.round()
    world.round(KEPT_S + 10.0)
    assert "job" in world.records
    world.holdings["a"] = held
    assert world.round() == [(Verb.CLEAR, "a")]
    world.holdings["a"] = []
    assert world.round() == [(Verb.CLEAR, "a")], "an order to start it may be under way"
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    world.round()
    assert world.records == {}


def test_a_file_that_has_changed_says_nothing_of_the_lease_of_what_runs() -> None:
    world = World()
    running(world)
    del world.holdings["a"]
    world.store.members["a"] = Member("a", up=False)
    spec = replace(SPEC, name="job", failover="restart", digest="two")
    world.jobs = {"job": DesiredJob(spec, text="two")}
    world.round()
    world.round(over_s(leased(world.records["job"], spec)) + 10.0)
    assert (world.records["job"].state, world.records["job"].on) == (RecordState.PLACED, "a")


def test_a_job_is_placed_on_a_node_that_has_its_labels() -> None:
    world = World()
    world.store.members["a"] = Member("a", host="gpu-1", labels={"data": "imagenet"})
    world.store.members["b"] = Member("b", host="gpu-2")
    for nodes, on in (({"data": "imagenet"}, "a"), ({"host": "gpu-2"}, "b")):
        world.jobs = {"job": DesiredJob(replace(SPEC, name="job", nodes=tuple(nodes.items())))}
        world.round()
        assert world.records["job"].on == on
        world.jobs = {}
        world.round()
        world.holdings[on] = [Holding("job", world.records["job"].epoch, Phase.FENCED)]
        world.round()
    world.jobs = {"job": DesiredJob(replace(SPEC, name="job", nodes=(("data", "laion"),)))}
    world.round()
    assert world.last.answer.why["job"] == "fits no node: 2 nodes: needs the label 'data=laion'"

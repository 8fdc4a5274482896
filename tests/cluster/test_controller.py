"""Single rounds of the cluster's controller, against a store and agents that are plain values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.controller import (
    BUSY_S,
    KEPT_S,
    PREPARE_S,
)
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.leases import LEASE_S, MARGIN_S, over_s
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.records import (
    Holding,
    Phase,
    Record,
    RecordState,
    Request,
    Saved,
    Verb,
    Wanted,
    file_version,
)
from dlsched.cluster.core.snapshot import ClusterDecision, Left
from dlsched.cluster.requests import REQUEST_S
from dlsched.cluster.store import Member
from tests.cluster.conftest import SPEC, World, running


def test_a_record_is_committed_before_its_order(empty: World) -> None:
    empty.want("job")
    assert empty.round() == [(Verb.ARRIVE, "a")]
    assert empty.written_when_ordered[0]["job"].on == "a"


def test_a_request_for_a_report_confirms_what_is_placed_there(world: World) -> None:
    assert world.confirmed == {"a": {"job": 1}, "b": {}}


def test_a_move_waits_for_room_and_is_dropped_without(restless: World) -> None:
    assert restless.last.next_s == BUSY_S
    assert restless.round(PREPARE_S - 5.0) == [(Verb.PREPARE, "b")]
    assert restless.round(10.0) == []
    assert restless.records["job"].state is RecordState.PLACED


def test_a_changed_file_changes_the_job_on_its_node(empty: World) -> None:
    running(empty, file="one")
    empty.want("job", digest="two", text="two")
    assert empty.round() == [(Verb.ARRIVE, "a")]
    found = empty.records["job"]
    assert (found.state, found.on, found.epoch) == (RecordState.PLACED, "a", 2)
    assert (found.digest, found.first) == ("one", 2), "its node has not said that it has the file"
    assert empty.round() == [(Verb.ARRIVE, "a")]
    empty.holdings["a"] = [Holding("job", 2, Phase.RUNNING, 100, file=file_version("two"))]
    assert empty.round() == []
    assert empty.records["job"] == replace(found, digest="two")


def test_a_changed_file_that_is_the_same_job_reaches_its_node_too(empty: World) -> None:
    running(empty, file="one")
    empty.want("job", text="name: job\nmetrics: {preset: another}")
    assert empty.round() == [(Verb.ARRIVE, "a")]
    assert empty.orders[0].text == empty.jobs["job"].text


def test_a_job_that_ends_by_its_changed_file_does_not_run_again(empty: World) -> None:
    running(empty, file="one")
    empty.want("job", digest="two", text="two")
    empty.round()
    empty.holdings["a"] = [Holding("job", 2, Phase.ENDED, exit_code=0, file=file_version("two"))]
    for _ in range(3):
        empty.round()
        found = empty.records["job"]
        assert (found.state, found.digest, found.exit_code) == (RecordState.ENDED, "two", 0)


def test_a_file_that_changes_during_a_move_waits_for_its_end(restless: World) -> None:
    restless.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    restless.round()
    assert restless.records["job"].state is RecordState.LEAVING
    restless.want("job", digest="two", text="two")
    restless.round()
    assert (restless.records["job"].state, restless.records["job"].digest) == (
        RecordState.LEAVING,
        "one",
    )


def test_a_record_is_removed_a_day_after_its_job_is_gone(world: World) -> None:
    world.jobs = {}
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    world.round()
    world.round()
    world.round(KEPT_S - 100.0)
    assert "job" in world.records
    world.round(200.0)
    assert world.records == {}


def test_a_stale_write_sends_no_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_job_whose_file_cannot_be_read_is_not_ended(world: World) -> None:
    world.jobs, world.unreadable = {}, {"job"}
    assert world.round() == []
    assert world.records["job"].state is RecordState.PLACED
    world.unreadable = set()
    world.round()
    assert world.records["job"].state is RecordState.ENDED


def test_no_order_is_sent_without_the_file_that_it_needs(empty: World) -> None:
    empty.want("job")
    assert empty.round() == [(Verb.ARRIVE, "a")]
    empty.jobs, empty.unreadable = {}, {"job"}
    assert empty.round() == []
    empty.want("job")
    assert empty.round() == [(Verb.ARRIVE, "a")]


def test_the_record_of_an_unread_job_is_not_forgotten(world: World) -> None:
    world.holdings["a"] = [Holding("job", 1, Phase.ENDED, exit_code=0)]
    world.round()
    world.jobs, world.unreadable = {}, {"job"}
    world.round(KEPT_S + 1)
    world.round()
    assert world.records["job"].exit_code == 0


def test_a_node_that_answered_another_leader_is_not_taken_for_gone(world: World) -> None:
    undoing = replace(world.records["job"], state=RecordState.UNDOING, on="b", source="a", epoch=2)
    version = world.store.put(undoing, world.store.records()["job"].version)
    world.store.leading = "other"
    assert world.round(1000.0) == [], "it does not lead"
    world.store.leading = "me"
    world.fail("b")
    world.round()
    world.round(over_s(world.records["job"]) - 1.0)
    assert world.store.records()["job"].version == version
    world.round(2.0)
    assert world.records["job"].state is RecordState.RETURNING


# ------------------------------------------------------------------ requests of people


def test_a_pause_holds_placements_and_moves(restless: World) -> None:
    restless.store.ask(Request(Wanted.PAUSE))
    restless.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    restless.want("job", "late")
    assert restless.round() == []
    assert restless.last.paused
    assert restless.records.keys() == {"job"}
    assert restless.records["job"].state is RecordState.PLACED
    restless.store.done(Request(Wanted.PAUSE))
    restless.round()
    assert "late" in restless.records


def test_a_move_under_way_goes_on_in_a_pause(restless: World) -> None:
    restless.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    restless.round(1.0)
    restless.store.ask(Request(Wanted.PAUSE))
    restless.holdings["a"] = [Holding("job", 1, Phase.AWAY, saved=Saved(100))]
    restless.round(1.0)
    assert restless.records["job"].state is RecordState.MOVING


def test_a_move_by_hand_needs_no_gain_and_no_rest(world: World) -> None:
    # Nothing is left of it, so that no policy could move it.
    world.left = Left(0.0, 1.0, 2.0)
    world.store.ask(Request(Wanted.MOVE, "job", "b"))
    assert world.round() == [(Verb.PREPARE, "b")]
    assert list(world.last.requests.values()) == ["b makes room for the job"]
    world.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    assert world.round(1.0) == [(Verb.LEAVE, "a")]
    assert world.store.requests() == [Request(Wanted.MOVE, "job", "b")]
    world.round(1.0)
    assert world.last.done == {Request(Wanted.MOVE, "job", "b"): "job moves to b"}
    assert world.store.requests() == []


@pytest.mark.parametrize(
    ("target", "unmovable", "draining", "why"),
    [
        (
            "b",
            "the job declares no checkpoint",
            False,
            "the job cannot be moved: the job declares no checkpoint",
        ),
        ("c", None, False, "there is no such node"),
        ("b", None, True, "the node drains"),
    ],
)
def test_a_move_by_hand_obeys_the_rules_of_safety(
    world: World, target: str, unmovable: str | None, draining: bool, why: str
) -> None:
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


def test_a_move_by_hand_waits_for_the_end_of_a_pause(world: World) -> None:
    request = Request(Wanted.MOVE, "job", "b")
    world.store.ask(Request(Wanted.PAUSE))
    world.store.ask(request)
    for _ in range(2):
        assert world.round(REQUEST_S) == []
        assert world.last.requests[request] == "the cluster is paused"
    world.store.done(Request(Wanted.PAUSE))
    assert world.round() == [(Verb.PREPARE, "b")]


def test_the_jobs_of_a_forgotten_node_start_elsewhere_under_a_new_epoch(world: World) -> None:
    world.fail("a")
    world.round(60.0)
    assert world.records["job"].on == "a"
    world.store.ask(Request(Wanted.FORGET, "a"))
    world.round()
    assert world.records["job"].why == "the job's node was declared off"
    assert world.round() == [(Verb.ARRIVE, "b")]
    assert (world.records["job"].on, world.records["job"].epoch) == ("b", 2)
    # It was not off for good: it ends what it has, and counts again.
    world.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100)]
    world.store.members["a"] = Member("a")
    assert (Verb.CLEAR, "a") in world.round()
    assert world.last.done == {Request(Wanted.FORGET, "a"): "a is not off: it answers"}


def test_the_request_to_forget_a_node_that_has_left_the_swarm_comes_to_an_end(world: World) -> None:
    del world.holdings["a"], world.store.members["a"]
    request = Request(Wanted.FORGET, "a")
    world.store.ask(request)
    world.round()
    assert world.last.requests.keys() == {request}, "its job is still there"
    world.round()
    assert world.records["job"].on == "b"
    assert world.last.done == {request: "a is no longer a member, and no job needs it"}
    assert world.store.requests() == []


def test_a_node_that_stays_silent_does_not_hold_up_lost_records_for_ever(empty: World) -> None:
    empty.want("job")
    empty.holdings = {"a": [Holding("job", 5, Phase.RUNNING, 100)]}
    empty.round()
    empty.round(LEASE_S + MARGIN_S + 1.0)
    assert empty.records["job"].on == "a"
    # It is back, and has run a job of which only it knew.
    empty.holdings["b"] = [Holding("job", 6, Phase.RUNNING, 900)]
    assert (Verb.CLEAR, "b") not in empty.round()
    assert "b runs the job at epoch 6" in empty.last.alarms[0]


def test_without_any_holding_an_empty_store_is_a_new_cluster(empty: World) -> None:
    empty.want("job")
    del empty.holdings["b"]
    assert empty.round() == [] and empty.records == {}
    limit_s = LEASE_S + MARGIN_S
    waits = f"waits for a report of b, which may hold the job, at most {limit_s:.0f} s"
    assert (empty.last.waits, empty.last.alarms) == ({"job": waits}, [])
    assert empty.last.next_s == BUSY_S
    assert empty.round(limit_s) == []
    assert empty.round() == [(Verb.ARRIVE, "a")], "b is silent for longer"
    assert empty.last.waits == {}


def test_an_epoch_is_above_all_that_a_node_knows(empty: World) -> None:
    empty.holdings["b"] = [Holding("job", 5, Phase.FENCED)]
    empty.want("job")
    assert empty.round() == [(Verb.ARRIVE, "a")]
    assert empty.records["job"].epoch == 6


def test_a_withdrawn_job_starts_nowhere_while_it_may_still_run(world: World) -> None:
    held = world.holdings.pop("a")
    world.jobs = {}
    world.round()
    world.want("job")
    assert world.round() == []
    why = "a does not answer, and may still run the job: is dlsched running there?"
    assert world.last.waits == {"job": why}
    world.holdings["a"] = held
    assert world.round() == [(Verb.CLEAR, "a")]
    assert world.last.waits == {"job": "the job is still being ended on a"}
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    assert world.round() == [(Verb.ARRIVE, "a")]
    assert world.last.waits == {}


def test_a_record_stays_until_its_node_has_answered(world: World) -> None:
    del world.holdings["a"]
    world.jobs = {}
    world.rounds(2)
    world.round(KEPT_S + 10.0)
    assert "job" in world.records


def test_a_job_is_placed_on_a_node_that_has_its_labels(empty: World) -> None:
    empty.store.members["b"] = Member("b", host="gpu-2", labels={"data": "imagenet"})
    labels = (("data", "imagenet"), ("host", "gpu-2"))
    empty.jobs = {"job": DesiredJob(replace(SPEC, name="job", nodes=labels))}
    empty.round()
    assert empty.records["job"].on == "b"

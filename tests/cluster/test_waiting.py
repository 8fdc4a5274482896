"""What a job waits for before it may start, and what does not hold up the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.policies.spread import SpreadParameters
from dlsched.cluster.core.records import (
    LIKELY_EPOCH_MAX,
    Holding,
    Phase,
    RecordState,
    Request,
    Wanted,
)
from dlsched.cluster.store import Member, MemoryStore, NotStorable
from dlsched.cluster.waiting import LONG_S
from dlsched.model.spec import Checkpoint
from tests.cluster.test_controller import SPEC, Moves, World, running

LEASED = replace(
    SPEC,
    name="job",
    digest="one",
    failover="restart",
    checkpoint=Checkpoint("SIGUSR1", 30.0, "/ckpt", shared=True),
)


def queued_by_its_lease(world: World) -> None:
    """Its node is down, its lease has run out, and the other node does not answer now."""
    world.jobs = {"job": DesiredJob(LEASED)}
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100)]
    world.round()
    del world.holdings["a"], world.holdings["b"]
    world.store.members["a"] = Member("a", up=False)


def test_in_a_new_swarm_a_job_waits_for_the_node_that_last_said_that_it_has_it() -> None:
    world = World()
    runs = [Holding(job, 3, Phase.RUNNING, 100) for job in ("one", "two")]
    world.holdings = {"a": [], "b": runs}
    world.want("one")
    world.round()
    world.round()
    b = world.holdings.pop("b")
    world.want("one", "two", "new")  # a second manager submits its files
    world.round()
    assert "two" not in world.records and "b" in world.last.waits["two"]
    assert world.records["new"].on == "a", "b has said that it does not have it"
    world.holdings["b"] = b
    world.round()
    assert (world.records["two"].on, world.records["two"].epoch) == ("b", 3)


def test_in_a_new_swarm_every_job_waits_for_a_node_that_has_not_answered_yet() -> None:
    world = World()
    world.holdings = {"a": [Holding("one", 3, Phase.RUNNING, 100)]}
    world.want("one")
    world.round()
    world.want("one", "two")
    world.round()
    assert world.last.waits.keys() == {"one", "two"}


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("up", [False, True])
def test_a_job_that_ended_by_its_lease_waits_for_nothing_on_its_node(
    edited: bool, up: bool
) -> None:
    world = World()
    queued_by_its_lease(world)
    for _ in range(60):
        world.round()
    assert world.records["job"].state is RecordState.ENDED and world.records["job"].off
    if edited:
        world.jobs = {"job": DesiredJob(replace(LEASED, digest="two"), text="two")}
    world.store.members["a"] = Member("a", up=up)  # and dlsched does not run there
    world.holdings["b"] = []
    world.round()
    assert (world.records["job"].on, world.last.waits) == ("b", {})


def test_a_lease_runs_out_though_the_file_has_changed_meanwhile() -> None:
    world = World()
    queued_by_its_lease(world)
    world.jobs = {"job": DesiredJob(replace(LEASED, digest="two"), text="two")}
    for _ in range(60):
        world.round()
    assert world.records["job"].off
    world.holdings["b"] = []
    world.round()
    assert (world.records["job"].on, world.records["job"].digest) == ("b", "two")


def test_a_node_that_is_removed_from_the_swarm_may_still_run_its_jobs() -> None:
    world = World()
    world.want("job")
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100)]
    world.round()
    del world.holdings["a"], world.store.members["a"]
    world.jobs = {}
    world.round()
    world.want("job")
    world.round()
    assert "a has left the swarm, and may still run it; if it is off" in world.last.waits["job"]
    world.round(LONG_S + 1.0)
    assert world.last.alarms[0].startswith("job cannot start again: a has left the swarm")
    world.store.ask(Request(Wanted.FORGET, "a"))
    world.round()
    assert world.records["job"].on == "b"


def test_forget_says_what_to_do_where_only_dlsched_does_not_answer() -> None:
    world = World()
    world.want("job")
    world.round()
    del world.holdings["a"]
    request = Request(Wanted.FORGET, "a")
    world.store.ask(request)
    world.round()
    why = "a is not off: its engine answers; start dlsched there, or stop the engine"
    assert world.last.done == {request: why}


def test_a_node_that_keeps_a_job_from_starting_is_named() -> None:
    world = World()
    queued_by_its_lease(world)
    world.store.members["c"] = Member("c")
    world.holdings |= {"b": [], "c": [Holding("job", 1, Phase.FAILED)]}
    for _ in range(40):
        world.round()
    world.round(LONG_S)
    assert world.last.alarms == ["job cannot start again: it is still being ended on c"]


@pytest.mark.parametrize("claimed", [1 << 53, LIKELY_EPOCH_MAX + 1])
def test_a_node_that_claims_the_last_epochs_burns_no_name(claimed: int) -> None:
    world = World()
    world.holdings["b"] = [Holding("job", claimed, Phase.FENCED)]
    world.want("job")
    world.round()
    assert (world.records["job"].on, world.records["job"].epoch) == ("a", 1)


def test_a_placement_below_its_node_s_fence_is_written_again_above_it() -> None:
    world = World()
    world.want("other")
    world.round()
    world.holdings = {
        "a": [Holding("other", 1, Phase.RUNNING, 100)],
        "b": [Holding("job", 5, Phase.FENCED)],
    }
    world.round()
    fenced = world.holdings.pop("b")  # its agent is started again
    world.want("other", "job")
    world.round()
    assert (world.records["job"].on, world.records["job"].epoch) == ("b", 1)
    world.holdings["b"] = fenced
    world.round()
    assert world.records["job"].epoch == 6 and world.orders[-1].epoch == 6


class Refusing(MemoryStore):
    """A store that takes no record of that job."""

    def put(self, record, version):  # type: ignore[no-untyped-def]
        if record.job == "liar":
            raise NotStorable("liar: its checkpoint is no path")
        return super().put(record, version)


def test_a_record_that_cannot_be_written_again_holds_up_no_other_job() -> None:
    world = World()
    world.store = Refusing([Member("a"), Member("b")], leader="me")
    world.start_controller()
    world.want("first")
    world.round()
    first = Holding("first", 1, Phase.RUNNING, 100)
    world.holdings["a"] = [first]
    world.holdings["b"] = [Holding("liar", 4, Phase.RUNNING, 100)]
    world.want("first", "liar", "third")
    world.round()
    assert world.records.keys() == {"first", "third"}
    assert "liar" in world.last.waits
    world.want("liar", "third")
    world.round()
    assert world.records["first"].state is RecordState.ENDED


def test_a_job_that_is_known_to_have_ended_does_not_wait_for_its_node() -> None:
    world = World()
    world.want("job")
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.ENDED, exit_code=0)]
    world.round()
    world.jobs = {}
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.FENCED)]
    world.round()
    del world.holdings["a"], world.store.members["a"]
    world.want("job")
    world.round()
    assert (world.records["job"].on, world.last.waits) == ("b", {})


def test_a_job_whose_file_cannot_be_read_waits_for_its_node() -> None:
    world = World()
    queued_by_its_lease(world)
    world.jobs, world.unreadable = {}, {"job"}
    for _ in range(60):
        world.round()
    assert world.records["job"].state is RecordState.PLACED


def test_a_move_is_dropped_whose_target_drains_meanwhile() -> None:
    world = World(Moves(SpreadParameters()))
    running(world)
    world.store.drain("b")
    world.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    world.round()
    assert world.records["job"].state is RecordState.PLACED

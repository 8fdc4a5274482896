"""What a job waits for before it may start, and what does not hold up the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.records import (
    LIKELY_EPOCH_MAX,
    Holding,
    Phase,
    RecordState,
    Request,
    Wanted,
)
from dlsched.cluster.store import Member, MemoryStore, StaleRecord
from dlsched.model.spec import Checkpoint
from tests.cluster.conftest import SPEC, World

LEASED = replace(
    SPEC,
    name="job",
    digest="one",
    failover="restart",
    checkpoint=Checkpoint("SIGUSR1", 30.0, "/ckpt", shared=True),
)


@pytest.fixture
def down(empty: World) -> World:
    """The node of a leased job is down, and the other one does not answer now."""
    empty.jobs = {"job": DesiredJob(LEASED)}
    empty.round()
    empty.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100)]
    empty.round()
    empty.holdings.clear()
    empty.store.members["a"] = Member("a", up=False)
    return empty


def test_in_a_new_swarm_a_job_waits_for_the_node_that_last_said_that_it_has_it(
    empty: World,
) -> None:
    runs = [Holding(job, 3, Phase.RUNNING, 100) for job in ("one", "two")]
    empty.holdings = {"a": [], "b": runs}
    empty.want("one")
    empty.round()
    empty.round()
    b = empty.holdings.pop("b")
    empty.want("one", "two", "new")  # a second manager submits its files
    empty.round()
    assert "two" not in empty.records and "b" in empty.last.waits["two"]
    assert empty.records["new"].on == "a", "b has said that it does not have it"
    empty.holdings["b"] = b
    empty.round()
    assert (empty.records["two"].on, empty.records["two"].epoch) == ("b", 3)


@pytest.mark.parametrize("edited_after", [None, 0, 60])
@pytest.mark.parametrize("up", [False, True])
def test_a_job_that_ended_by_its_lease_waits_for_nothing_on_its_node(
    down: World, edited_after: int | None, up: bool
) -> None:
    for count in range(61):
        if count == edited_after:
            down.jobs = {"job": DesiredJob(replace(LEASED, digest="two"), text="two")}
        down.round()
    assert down.records["job"].state is RecordState.ENDED and down.records["job"].off
    down.store.members["a"] = Member("a", up=up)  # and dlsched does not run there
    down.holdings["b"] = []
    down.round()
    assert (down.records["job"].on, down.last.waits) == ("b", {})


def test_a_node_that_is_removed_from_the_swarm_may_still_run_its_jobs(world: World) -> None:
    del world.holdings["a"], world.store.members["a"]
    world.jobs = {}
    world.round()
    world.want("job")
    world.round()
    assert "a has left the swarm, and may still run the job; if a is off" in world.last.waits["job"]
    world.store.ask(Request(Wanted.FORGET, "a"))
    world.round()
    assert world.records["job"].on == "b"


def test_forget_says_what_to_do_where_only_dlsched_does_not_answer(empty: World) -> None:
    empty.want("job")
    empty.round()
    del empty.holdings["a"]
    request = Request(Wanted.FORGET, "a")
    empty.store.ask(request)
    empty.round()
    why = "a is not off: its engine answers: start dlsched on that node, or stop the engine"
    assert empty.last.done == {request: why}


def test_a_node_that_keeps_a_job_from_starting_is_named(down: World) -> None:
    down.store.members["c"] = Member("c")
    down.holdings |= {"b": [], "c": [Holding("job", 1, Phase.FAILED)]}
    down.rounds(40)
    assert down.last.waits == {"job": "the job is still being ended on c"}


@pytest.mark.parametrize("claimed", [1 << 53, LIKELY_EPOCH_MAX + 1])
def test_a_node_that_claims_the_last_epochs_burns_no_name(empty: World, claimed: int) -> None:
    empty.holdings["b"] = [Holding("job", claimed, Phase.FENCED)]
    empty.want("job")
    empty.round()
    assert (empty.records["job"].on, empty.records["job"].epoch) == ("a", 1)


class Refusing(MemoryStore):
    """A store that takes no record of that job."""

    def put(self, record, version):  # type: ignore[no-untyped-def]
        if record.job == "liar":
            raise StaleRecord("liar: config dlsched.lab.job.liar is not touched")
        return super().put(record, version)


def test_a_record_that_cannot_be_written_again_holds_up_no_other_job(empty: World) -> None:
    empty.store = Refusing([Member("a"), Member("b")], leader="me")
    empty.start_controller()
    empty.want("first")
    empty.round()
    first = Holding("first", 1, Phase.RUNNING, 100)
    empty.holdings["a"] = [first]
    empty.holdings["b"] = [Holding("liar", 4, Phase.RUNNING, 100)]
    empty.want("first", "liar", "third")
    empty.round()
    assert empty.records.keys() == {"first", "third"}
    assert "liar" in empty.last.waits
    empty.want("liar", "third")
    empty.round()
    assert empty.records["first"].state is RecordState.ENDED


def test_a_job_whose_file_cannot_be_read_waits_for_its_node(down: World) -> None:
    down.jobs, down.unreadable = {}, {"job"}
    down.rounds(60)
    assert down.records["job"].state is RecordState.PLACED


def test_a_move_is_dropped_whose_target_drains_meanwhile(restless: World) -> None:
    restless.store.drain("b")
    restless.holdings["b"] = [Holding("job", 1, Phase.PREPARED)]
    restless.round()
    assert restless.records["job"].state is RecordState.PLACED

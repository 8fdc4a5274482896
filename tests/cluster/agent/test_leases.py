"""A job that is to start elsewhere: the agent ends it where no manager comes, and the controller
waits for that. `World.check` raises where it runs twice, or goes on from less than it saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.cluster.core.leases import LEASE_S, MARGIN_S, over_s
from dlsched.cluster.core.records import Phase, RecordState
from dlsched.cluster.store import Member
from tests.cluster.agent.played import FILE
from tests.cluster.agent.world import FAILOVER, JOB, SHARED, World, phase

LEASE = int(LEASE_S)


def world_of(folder: Path, text: str = FAILOVER) -> World:
    """The job runs on a, for a minute."""
    world = World(folder, text)
    world.seconds(60)
    assert world.runs_on("a")
    return world


def cut(world: World, name: str = "a") -> None:
    world.cut.add(name)
    world.store.members[name] = Member(name, up=False)


def mend(world: World, name: str = "a") -> None:
    world.cut.discard(name)
    world.store.members[name] = Member(name)
    if not world.nodes[name].alive:
        world.nodes[name].begin()


def over(world: World) -> int:
    return int(over_s(world.record))


def test_it_saves_itself_and_ends_at_the_end_of_its_lease(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    cut(world)
    world.seconds(LEASE - 3)
    assert world.runs_on("a")
    world.seconds(8)
    assert not world.runs_on("a")
    assert world.nodes["a"].engine.storage[FILE] > LEASE
    assert phase(world, "a") is Phase.AWAY


def test_it_starts_elsewhere_after_that_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    cut(world)
    world.seconds(over(world) - 1)
    assert (world.record.on, world.record.state) == ("a", RecordState.PLACED)
    world.seconds(20)
    assert world.runs_on("b") and (world.record.on, world.record.epoch) == ("b", 2)
    assert world.nodes["b"].engine.started_from == [world.nodes["a"].engine.acknowledged[JOB]]
    mend(world)
    world.seconds(10)
    assert phase(world, "a") is Phase.FENCED and JOB not in world.nodes["a"].engine.containers
    assert world.runs_on("b")


def test_one_that_saves_nothing_ends_all_the_same(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.nodes["a"].engine.saves = False
    cut(world)
    world.seconds(LEASE + 8)
    assert not world.runs_on("a") and phase(world, "a") is Phase.AWAY
    world.seconds(over(world))
    assert world.runs_on("b")


def test_while_its_container_has_not_ended_it_is_not_away(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    engine = world.nodes["a"].engine
    engine.saves = engine.removes = False
    cut(world)
    world.seconds(LEASE + 8)
    assert world.runs_on("a") and phase(world, "a") is Phase.FAILED
    mend(world)
    world.seconds(3)
    assert world.record.epoch == 1
    engine.removes = True
    world.seconds(6)
    assert world.runs_on("a") and world.record.epoch == 2


@pytest.mark.parametrize("after", [LEASE + 1, LEASE + 2, LEASE + 3, LEASE + 8, LEASE + 60])
def test_an_agent_that_starts_again_does_not_start_it_again(tmp_path: Path, after: int) -> None:
    world = world_of(tmp_path)
    cut(world)
    world.seconds(after)
    count = len(world.nodes["a"].engine.started_from)
    for _ in range(3):
        world.nodes["a"].begin()
        world.seconds(2)
    assert not world.runs_on("a")
    assert len(world.nodes["a"].engine.started_from) == count
    world.seconds(over(world))
    assert world.runs_on("b")


def test_an_agent_that_starts_again_goes_on_counting(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    cut(world)
    for _ in range(6):
        world.seconds(15)
        world.nodes["a"].begin()
    world.seconds(8)
    assert not world.runs_on("a")


def test_a_host_that_starts_again_waits_for_a_manager(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    cut(world)
    world.nodes["a"].host_fails()
    world.seconds(10)
    world.nodes["a"].begin()
    world.seconds(20)
    assert not world.runs_on("a")
    mend(world)
    world.seconds(10)
    assert world.runs_on("a") and (world.record.on, world.record.epoch) == ("a", 2)


def test_it_is_back_where_the_node_is_back_in_time(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    cut(world)
    world.seconds(LEASE + 20)
    step = world.nodes["a"].engine.storage[FILE]
    mend(world)
    world.seconds(10)
    assert world.runs_on("a") and (world.record.on, world.record.epoch) == ("a", 2)
    assert world.nodes["a"].engine.started_from[-1] == step


def test_contact_while_it_saves_itself_keeps_it_there(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    cut(world)
    world.until(lambda: phase_of(world) is Phase.SAVING, LEASE + 5)
    mend(world)
    world.seconds(10)
    assert world.runs_on("a") and world.record.on == "a"


def phase_of(world: World) -> Phase:
    """Without contact."""
    own = world.nodes["a"].agent._held.of(JOB)
    assert own is not None
    return own.phase


def test_by_default_it_runs_on_and_stays(tmp_path: Path) -> None:
    world = world_of(tmp_path, SHARED)
    cut(world)
    world.seconds(600)
    assert world.runs_on("a") and (world.record.on, world.record.epoch) == ("a", 1)


def test_where_the_store_still_reaches_the_node_it_stays(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.cut = {"a"}
    world.seconds(over(world) + 60)
    assert world.record.on == "a"
    world.cut = set()
    world.seconds(10)
    assert world.runs_on("a")


def test_requests_whose_answers_are_lost_are_no_contact(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.mute = {"a"}
    world.store.members["a"] = Member("a", up=False)
    world.seconds(LEASE + 8)
    assert not world.runs_on("a")
    world.seconds(over(world))
    assert world.runs_on("b")


def test_where_only_the_store_calls_it_down_it_runs_on(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.store.members["a"] = Member("a", up=False)
    world.seconds(over(world) + 60)
    assert world.runs_on("a") and world.record.epoch == 1


def test_another_controller_counts_from_its_own_beginning(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    cut(world)
    world.seconds(over(world) - 5)
    world.begin()
    world.seconds(over(world) - 5)
    assert world.record.on == "a"
    world.seconds(20)
    assert world.record.on == "b"


def test_a_job_that_may_take_long_to_save_and_to_end_has_the_time(tmp_path: Path) -> None:
    text = FAILOVER.replace("timeout: 30s", "timeout: 20m") + "stop: {grace: 10m}\n"
    world = world_of(tmp_path, text)
    cut(world)
    world.seconds(int(LEASE_S + MARGIN_S) + 1700)
    assert world.record.on == "a"
    world.seconds(120)
    assert world.record.on == "b"

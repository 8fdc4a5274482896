"""What an agent does without files that it had, or after it was killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.cluster.agent.agent import GONE
from dlsched.cluster.core.records import Order, Phase, RecordState, Verb
from dlsched.model.errors import NotNow
from tests.cluster.agent.played import PlayedNode
from tests.cluster.agent.world import (
    JOB,
    TEXT,
    NodeUnderTest,
    World,
    kill_at,
    phase,
)
from tests.lanes import but_the_first_long


def test_a_disk_that_takes_nothing_follows_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.nodes["a"].agent

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(agent._held.files, "secure", full)
        world.seconds(3)
        assert not world.runs_on("a")
        (alarm,) = agent.alarms()
        assert "No space left on device" in alarm.text
    world.seconds(3)
    assert world.runs_on("a") and agent.alarms() == ()


def test_a_lost_file_starts_no_job_that_is_away(world: World) -> None:
    world.moves(until=lambda: world.runs_on("b"))
    node = world.nodes["a"]
    (node.folder / "cluster/jobs" / f"{JOB}.json").write_text("{")
    for _ in range(2):  # the broken file is moved aside by the first
        node.begin()
        world.seconds(2)
    world.seconds(20)
    assert world.record.on == "b" and world.runs_on("b") and not world.runs_on("a")


def lose(node: NodeUnderTest, how: str) -> None:
    """Its agent begins again without the job's file."""
    path = node.folder / "cluster/jobs" / f"{JOB}.json"
    path.write_text("{") if how == "broken" else path.unlink()
    node.begin()


LOST = pytest.mark.parametrize("how", ["broken", "gone"])


@LOST
@pytest.mark.parametrize("state", [RecordState.LEAVING, RecordState.MOVING, RecordState.RETURNING])
def test_a_job_whose_file_is_lost_while_it_moves_goes_on(
    world: World, state: RecordState, how: str
) -> None:
    world.nodes["b"].engine.breaks = True
    world.moves(until=lambda: world.record.state is state)
    world.policy.wanted = ()
    lose(world.nodes["a"], how)
    world.seconds(40)  # `check`: from its checkpoint
    assert (world.record.on, world.record.state) == ("a", RecordState.PLACED)
    assert world.runs_on("a") and phase(world, "a") is Phase.RUNNING
    assert min(world.nodes["a"].engine.started_from[1:], default=1) > 0


@LOST
def test_a_job_that_has_moved_and_whose_file_is_lost_goes_on(world: World, how: str) -> None:
    world.moves(until=lambda: world.record.on == "b" and world.record.state is RecordState.PLACED)
    world.seconds(3)
    starts = len(world.nodes["b"].engine.started_from)
    lose(world.nodes["b"], how)
    world.seconds(5)
    assert (world.record.on, world.record.state) == ("b", RecordState.PLACED)
    assert world.runs_on("b") and phase(world, "b") is Phase.RUNNING
    assert len(world.nodes["b"].engine.started_from) == starts


@LOST
def test_a_job_whose_file_and_container_are_lost_is_not_started_afresh(
    world: World, how: str
) -> None:
    world.nodes["b"].engine.breaks = True
    world.moves(until=lambda: world.record.state is RecordState.RETURNING)
    world.policy.wanted = ()
    node = world.nodes["a"]
    node.engine.containers.clear()
    lose(node, how)
    world.seconds(10)
    assert world.record.state is RecordState.ENDED
    assert (world.record.exit_code, world.record.why) == (1, GONE)
    assert not world.runs_on("a") and not world.runs_on("b")


def test_a_container_is_not_taken_for_lost_before_it_could_be_known(world: World) -> None:
    world.seconds(5)
    world.cut = {"a", "b"}
    node = world.nodes["a"]
    lose(node, "gone")
    for _ in range(2):
        node.agent.follow(Order(Verb.GIVE_BACK, "a", JOB, 2, text=TEXT))
        node.cycle()
    assert phase(world, "a") is Phase.RUNNING and world.runs_on("a")
    assert len(node.engine.started_from) == 1


def test_an_agent_that_has_just_begun_reports_nothing(world: World) -> None:
    world.seconds(3)
    node = world.nodes["a"]
    node.begin()
    with pytest.raises(NotNow):
        node.agent.report({}, frozenset())
    node.agent.step(replace(node._report(), engine_ok=False))
    with pytest.raises(NotNow):
        node.agent.report({}, frozenset())
    node.cycle()
    assert phase(world, "a") is Phase.RUNNING


WRITES = 9
"""Of a placement and a move, on both nodes together."""


@pytest.mark.parametrize(
    "after", but_the_first_long([True, False]), ids=["once it is written", "before it is written"]
)
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_an_agent_that_is_killed_at_a_write_goes_on(world: World, write: int, after: bool) -> None:
    kill_at(write, *world.nodes.values(), after=after)
    world.moves(20)
    dead = [node for node in world.nodes.values() if not node.alive]
    assert dead, "there are fewer writes"
    for node in dead:
        node.begin()
    world.seconds(300)
    assert world.record.state is RecordState.PLACED
    assert [name for name in world.nodes if world.runs_on(name)] == [world.record.on]


def test_a_file_that_cannot_be_removed_ends_no_cycle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stays(_path: Path, missing_ok: bool = False) -> None:
        raise OSError(5, "Input/output error")

    world.moves(until=lambda: world.runs_on("b"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", stays)
        patched.setattr(PlayedNode, "clear", lambda *_, **__: None)
        world.desired = {}
        world.seconds(5)
    assert phase(world, "b") is Phase.FENCED


def test_archives_that_no_job_needs_are_removed_at_the_start(world: World) -> None:
    folder = world.nodes["a"].folder / "cluster"
    left = [folder / "outgoing/other-e1.tar", folder / f"incoming/.{JOB}-e7.tar.tmp"]
    for path in left:
        path.write_text("1")
    world.nodes["a"].begin()
    assert not any(path.exists() for path in left)

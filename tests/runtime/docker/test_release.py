"""Giving everything back while a move is under way, without an engine."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.limits.changing import Changes
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.docker.moves import Moves
from dlsched.runtime.docker.runtime import DockerRuntime
from tests.runtime.docker.test_contract import FakeWorld, in_process, world

__all__ = ["in_process", "world"]


@pytest.fixture
def runtime(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> DockerRuntime:
    """With a move that never ends."""
    monkeypatch.setattr(Moves, "unsettled", True)
    return world.runtime


@pytest.fixture
def left_s(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that was left to give limits back, each time that was tried."""
    found: list[float] = []

    def release(_: Changes, ceilings: object, own: object, until_s: float) -> tuple[()]:
        found.append(until_s - world.now_s())
        return ()

    monkeypatch.setattr(Changes, "release", release)
    return found


def test_a_move_that_hangs_leaves_time_to_give_limits_back(
    runtime: DockerRuntime, left_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "observe", lambda _: None)
    runtime.release({})
    assert left_s == [pytest.approx(5.0, abs=0.1)]


def test_the_parent_groups_weight_is_given_back_with_the_limits(
    runtime: DockerRuntime, left_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def follow(*_: object, given_back: bool) -> Future[None]:
        asked.append(given_back)
        failed: Future[None] = Future()
        failed.set_exception(EngineUnavailable("no thread can be started"))
        return failed

    monkeypatch.setattr(ParentGroup, "follow", follow)
    monkeypatch.setattr(Moves, "unsettled", False)
    runtime.release({})
    assert (asked, left_s) == ([True], [10.0])


def test_limits_are_given_back_where_observing_fails(
    runtime: DockerRuntime, left_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def observe(_: float) -> None:
        raise RuntimeError("a fault in observing")

    monkeypatch.setattr(runtime, "observe", observe)
    runtime.release({})
    assert left_s == [10.0]
    assert not runtime.moves.winding_up

"""Giving everything back while a move is under way, without an engine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker.limits.changes import Changes
from dlsched.runtime.docker.limits.group import GroupWeight
from dlsched.runtime.docker.moves.moves import Moves
from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.docker.runtime import DockerRuntime

pytestmark = pytest.mark.timed


class Clock(SystemClock):
    """Its sleeps take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 100.0

    def now_s(self) -> float:
        return self.at_s

    def sleep_until(self, when_s: float) -> bool:
        self.at_s = when_s
        return False


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def runtime(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DockerRuntime]:
    """With a move that never ends."""
    monkeypatch.setattr(Moves, "unsettled", True)
    options = DockerOptions(
        state_dir=tmp_path, host=f"unix://{tmp_path}/absent.sock", call_wait_s=0.01, timeout_s=10.0
    )
    with closing(DockerRuntime(options, clock, lambda _: None)) as made:
        yield made


@pytest.fixture
def left_s(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that was left to give limits back, each time that was tried."""
    found: list[float] = []

    def release(_: Changes, ceilings: object, own: object, until_s: float) -> tuple[()]:
        found.append(until_s - clock.at_s)
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

    monkeypatch.setattr(GroupWeight, "follow", follow)
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
    assert not runtime._moves.winding_up

"""The shadow beside the controller's rounds: asked after them, and never waited for for long."""

from __future__ import annotations

from dataclasses import replace
from threading import Event, Thread

import pytest

from dlsched.cluster import shadowing
from dlsched.cluster.bounds import LINE_CHARACTERS
from dlsched.cluster.core.model import ClusterDecision, ClusterMemory, ClusterSnapshot
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.records import Record, Verb
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.shadowing import ROWS_MAX, Shadowing
from tests.cluster.test_controller import Moves, World, running

pytestmark = pytest.mark.timed

AT = "2026-01-01T00:00:00.000Z"


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine may be slow, too."""
    monkeypatch.setattr(shadowing, "WAIT_S", 60.0)


class Slow(SpreadPolicy):
    """Decides once it may."""

    def __init__(self) -> None:
        super().__init__(SpreadParameters())
        self.may, self.asked = Event(), 0

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        self.asked += 1
        assert self.may.wait(60.0)
        return super().decide(snapshot, memory)


def rounds(shadow: Shadowing | None) -> list[tuple[dict[str, Record], list[tuple[Verb, str]]]]:
    """Records and orders of rounds in which a job runs that could move."""
    world, found = World(), []
    running(world)
    for _ in range(4):
        orders = world.round()
        found.append((world.records, orders))
        if shadow is not None:
            shadow.take(world.last, AT)
    return found


def test_a_move_that_it_wants_is_shown_and_not_made() -> None:
    shadow = Shadowing("moves", Moves(SpreadParameters()))
    assert rounds(shadow) == rounds(None)
    row = shadow.row()
    assert [(one.job, one.done, one.would) for one in row.differences] == [
        ("job", "left on a", "moved to b")
    ]
    assert (row.same, row.different, row.failed, row.late, row.problem) == (0, 1, 0, 0, "")


def test_a_slow_one_is_not_waited_for_and_its_answer_counts_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shadowing, "WAIT_S", 0.01)
    policy, world = Slow(), World()
    shadow = Shadowing("slow", policy)
    world.want("job")
    world.round()
    assert shadow.take(world.last, AT) is None
    assert shadow.take(world.last, AT) is None
    row = shadow.row()
    assert (policy.asked, row.late, row.same) == (1, 2, 0)
    assert row.problem == "it still decides on a round"
    policy.may.set()
    assert shadow._thread is not None
    shadow._thread.join(60.0)
    row = shadow.row()
    assert (row.late, row.same, row.problem) == (2, 1, "")


def test_a_round_in_which_the_policy_was_not_asked_is_none_of_its() -> None:
    policy = Slow()
    policy.may.set()
    shadow, world = Shadowing("slow", policy), World()
    world.want("job")
    world.round()
    world.round(after_s=0.01)
    assert not world.last.answer.asked
    for report in (RoundReport(), world.last):
        assert shadow.take(report, AT) is None
    assert policy.asked == 0


def test_only_the_latest_differences_are_shown() -> None:
    shadow, world = Shadowing("moves", Moves(SpreadParameters())), World()
    running(world)
    world.round()
    for index in range(ROWS_MAX + 5):
        shadow._shadow._wanted.clear()
        shadow.take(world.last, f"at {index}")
    row = shadow.row()
    assert len(row.differences) == ROWS_MAX
    assert row.differences[-1].at == f"at {ROWS_MAX + 4}"
    assert row.different == ROWS_MAX + 5


def test_a_system_without_threads_costs_the_answer_and_not_the_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    shadow, world = Shadowing("moves", Moves(SpreadParameters())), World()
    running(world)
    world.round()
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", start)
        assert shadow.take(world.last, AT) is None
    assert (shadow.row().late, shadow.row().problem) == (1, "")
    assert shadow.take(world.last, AT) is not None


def test_what_it_says_is_bounded() -> None:
    class Talks(Moves):
        def decide(
            self, snapshot: ClusterSnapshot, memory: ClusterMemory | None
        ) -> ClusterDecision:
            found = super().decide(snapshot, memory)
            return replace(found, why={"job": "so\n" * 100_000})

    shadow, world = Shadowing("talks", Talks(SpreadParameters())), World()
    running(world)
    world.round()
    shadow.take(world.last, AT)
    (row,) = shadow.row().differences
    assert len(row.why) == LINE_CHARACTERS

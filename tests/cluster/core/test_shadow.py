"""A shadow's decisions beside the acting policy's: what counts as the same, and how often."""

from __future__ import annotations

from typing import Any, ClassVar

from dlsched.cluster.core.decider import ClusterAnswer, DeciderState, decided
from dlsched.cluster.core.guards import GuardMemory, Passed
from dlsched.cluster.core.model import ClusterDecision, ClusterMemory, ClusterSnapshot, Move
from dlsched.cluster.core.shadow import ClusterShadow, Otherwise
from tests.cluster.core.plant import job, node, snapshot

RUNS = snapshot([node("a"), node("b"), node("c")], [job("r", "a")])
WAITS = snapshot([node("a"), node("b")], [job("q")])
NOTHING = ClusterDecision()


class Played:
    """Decides what it is given, one after the other, and then the last again."""

    Parameters: ClassVar[type[Any]] = object

    def __init__(self, *decisions: ClusterDecision) -> None:
        self.left = list(decisions)
        self.memories: list[ClusterMemory | None] = []

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        self.memories.append(memory)
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def moved(target: str, why: str = "") -> ClusterDecision:
    return ClusterDecision(moves=(Move("r", target),), why={"r": why})


def acting(seen: ClusterSnapshot, decision: ClusterDecision = NOTHING) -> ClusterAnswer:
    return decided(Played(decision), seen, DeciderState())[0]


def shadowed(
    seen: ClusterSnapshot, done: ClusterDecision, would: ClusterDecision
) -> tuple[tuple[Otherwise, ...], int, int]:
    shadow = ClusterShadow("other", Played(would))
    new = shadow.ask(seen, acting(seen, done)).new
    return new, shadow.same, shadow.different


def test_the_same_placement_and_the_same_move_agree() -> None:
    place = ClusterDecision(place={"q": "a"})
    assert shadowed(WAITS, place, place) == ((), 1, 0)
    assert shadowed(RUNS, moved("b", "x"), moved("b", "y")) == ((), 1, 0)
    assert shadowed(RUNS, NOTHING, NOTHING) == ((), 0, 0)


def test_what_only_one_of_them_does_differs() -> None:
    kept = ClusterDecision(why={"r": "gains 1 s", "q": "no room"})
    place = ClusterDecision(place={"q": "b"})
    for seen, done, would, otherwise in (
        (RUNS, NOTHING, moved("b", "gains 9 s"), Otherwise("r", "-", "> b", "a", "gains 9 s")),
        (RUNS, moved("b"), kept, Otherwise("r", "> b", "-", "a", "gains 1 s")),
        (RUNS, moved("c"), moved("b"), Otherwise("r", "> c", "> b", "a", "")),
        (WAITS, place, kept, Otherwise("q", "b", "-", None, "no room")),
        (WAITS, kept, place, Otherwise("q", "-", "b", None, "")),
    ):
        assert shadowed(seen, done, would) == ((otherwise,), 0, 1)


def test_guards_hold_it_by_the_moves_that_were_made() -> None:
    made = GuardMemory((Passed("r", "b", "a", RUNS.now_s - 5.0),))
    shadow = ClusterShadow("other", Played(moved("b")))
    answer = shadow.ask(RUNS, ClusterAnswer(asked=True, before=DeciderState(guards=made))).answer
    assert answer.approved.moves == ()
    assert "it moved 5 s ago" in answer.approved.refused["r"]


def test_a_move_that_it_alone_wants_counts_once_until_one_is_made() -> None:
    shadow = ClusterShadow("other", Played(moved("b")))

    def ask(done: ClusterDecision = NOTHING) -> bool:
        return bool(shadow.ask(RUNS, acting(RUNS, done)).new)

    assert [ask(), ask(), ask()] == [True, False, False]
    assert ask(moved("c"))
    assert ask()
    assert (shadow.same, shadow.different) == (0, 3)
    # A job that has gone and comes back is another one.
    shadow.ask(snapshot([node("a")], []), acting(RUNS))
    assert ask()


def test_a_move_whose_target_changes_counts_once_too() -> None:
    policy = Played(moved("b"))
    shadow = ClusterShadow("other", policy)
    for target in ("b", "c", "b", "c"):
        policy.left = [moved(target)]
        shadow.ask(RUNS, acting(RUNS))
    assert shadow.different == 1


def test_it_keeps_its_own_memory() -> None:
    policy = Played(ClusterDecision(memory="own"))
    shadow = ClusterShadow("other", policy)
    for _ in range(2):
        shadow.ask(RUNS, ClusterAnswer(asked=True, before=DeciderState("of the acting one")))
    assert policy.memories == [None, "own"]


def test_a_failure_is_no_difference() -> None:
    shadow = ClusterShadow("other", Played(ClusterDecision(next_s=-1.0)))
    place = ClusterDecision(place={"q": "a"})
    found = shadow.ask(WAITS, acting(WAITS, place))
    assert "next_s is -1.0" in (found.answer.failure or "")
    assert (found.new, shadow.same, shadow.different, shadow.failed) == ((), 0, 0, 1)

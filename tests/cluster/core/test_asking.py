from __future__ import annotations

from typing import Any, ClassVar

import pytest

from dlsched.cluster.core.decider import ask
from dlsched.cluster.core.snapshot import Alternative, ClusterDecision, Move
from tests.cluster.core.plant import job, node, snapshot

SEEN = snapshot([node("a"), node("b")], [job("r", "a"), job("q")])


class Odd:
    """Answers what it was made with, or raises it."""

    Parameters: ClassVar[type[Any]] = object

    def __init__(self, parameters: Any) -> None:
        self.answer = parameters

    def decide(self, snapshot: object, memory: object) -> ClusterDecision:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (ZeroDivisionError("by 0"), "ZeroDivisionError: by 0"),
        (None, "`decide` returned 'None', must be a ClusterDecision"),
        (ClusterDecision(place={"q": 7}), "place must be a mapping of texts by job"),  # type: ignore[dict-item]
        (ClusterDecision(why=[]), "why must be a mapping"),  # type: ignore[arg-type]
        (ClusterDecision(moves=(("r", "b"),)), "is not a Move"),  # type: ignore[arg-type]
        (ClusterDecision(moves=(Move("r", "b"), Move("r", "a"))), "the decision moves a job twice"),
        (ClusterDecision(forecasts_s={"r": float("nan")}), "forecasts_s of 'r' must be a number"),
        (ClusterDecision(forecasts_s={"r": True}), "forecasts_s of 'r' must be a number"),
        (ClusterDecision(forecasts_s={"r": 1e300}), "must be a number of seconds"),
        (ClusterDecision(alternatives={"r": ("b",)}), "must be tuples of Alternatives"),  # type: ignore[dict-item]
        (
            ClusterDecision(alternatives={"r": (Alternative("b", "", float("inf")),)}),
            "must be tuples of Alternatives",
        ),
        (ClusterDecision(next_s=float("nan")), "next_s is nan, must be 0.1 to 3600"),
    ],
)
def test_spread_places_where_a_policy_fails(answer: object, failure: str) -> None:
    found = ask(Odd(answer), SEEN, "kept")
    assert found.failure is not None
    assert failure in found.failure
    assert dict(found.decision.place) == {"q": "b"}
    assert found.failure in found.decision.why["q"]
    assert found.decision.memory == "kept"


def test_what_a_policy_raises_is_one_bounded_line() -> None:
    found = ask(Odd(ValueError("x\n" * 50_000)), SEEN)
    assert found.failure is not None
    assert "ValueError" in found.failure
    assert len(found.failure) < 600
    assert found.failure.isprintable()


def test_a_sound_answer_is_the_decision() -> None:
    decision = ClusterDecision(place={"q": "a"}, memory="new")
    found = ask(Odd(decision), SEEN, "old")
    assert (found.decision, found.failure) == (decision, None)


def test_an_exception_whose_text_raises_is_named_by_its_kind() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit("and this, too")

    found = ask(Odd(Hostile()), SEEN)
    assert found.failure == "the cluster policy failed: Hostile"
    assert dict(found.decision.place) == {"q": "b"}

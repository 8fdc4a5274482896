"""PARTIES-like adjustments: one at a time, and taken back where they do harm."""

from __future__ import annotations

import pytest

from benchmarks.peers.parties import PartiesMemory
from dlsched.model.decision import Decision
from dlsched.model.state import JobView
from dlsched.policies.registry import load
from tests.benchmarks.peers.seen import service, snapshot

NAME = "benchmarks.peers.parties:PartiesPolicy"
EQUAL = PartiesMemory((("a", 1.0), ("b", 1.0), ("c", 2.0)))
"""On four cores an equal share is 4/3, and a unit a tenth of that."""
UNIT = 0.4 / 3


def decide(memory: PartiesMemory | None, *jobs: JobView, now_s: float = 10.0) -> Decision:
    return load(NAME).decide(snapshot(*jobs, now_s=now_s), memory)


def cores(decision: Decision) -> list[float]:
    return [one.cpu_cores or 0.0 for one in decision.limits.values()]


def test_who_violates_most_gets_a_unit_from_who_has_most_slack() -> None:
    decision = decide(EQUAL, service("a", 2.0), service("b", 3.0), service("c", 0.5))
    assert cores(decision) == pytest.approx([1.0, 1.0 + UNIT, 2.0 - UNIT])
    assert "gives 0.133 to b" in decision.why["c"]


def test_what_nobody_has_is_given_first() -> None:
    free = PartiesMemory((("a", 1.0), ("b", 1.0), ("c", 1.9)))
    decision = decide(free, service("a", 2.0), service("b", 1.0), service("c", 0.5))
    assert cores(decision) == pytest.approx([1.0 + UNIT, 1.0, 1.9 - (UNIT - 0.1)])


def test_a_downsizing_that_does_harm_is_taken_back_and_not_tried_again_for_a_while() -> None:
    easy = [service("a", 0.9), service("b", 0.9), service("c", 0.7)]
    tried = decide(EQUAL, *easy)
    assert cores(tried) == pytest.approx([1.0, 1.0, 2.0 - UNIT])
    hurt = [service("a", 0.9), service("b", 0.9), service("c", 1.0)]
    assert isinstance(tried.memory, PartiesMemory)
    back = decide(tried.memory, *hurt, now_s=11.0)
    assert cores(back) == pytest.approx([1.0, 1.0, 2.0])
    assert "takes back" in back.why["c"]
    assert isinstance(back.memory, PartiesMemory)
    assert cores(decide(back.memory, *easy, now_s=20.0)) == pytest.approx([1.0, 1.0, 2.0])
    assert cores(decide(back.memory, *easy, now_s=42.0))[2] == pytest.approx(2.0 - UNIT)

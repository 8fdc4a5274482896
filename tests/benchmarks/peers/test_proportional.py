"""Proportional control: what is late grows, and all of it fits onto the node."""

from __future__ import annotations

import pytest

from benchmarks.peers.proportional import ProportionalMemory
from dlsched.policies.registry import load
from tests.benchmarks.peers.seen import service, snapshot

NAME = "benchmarks.peers.proportional:ProportionalPolicy"
BEFORE = ProportionalMemory((("a", 1.0), ("b", 1.0)))


def test_a_ceiling_grows_with_lateness_and_shrinks_with_haste() -> None:
    seen = snapshot(service("a", 2.0), service("b", 0.5))
    decision = load(NAME).decide(seen, BEFORE)
    assert decision.limits["a"].cpu_cores == pytest.approx(2.0**0.7, rel=0.01)
    assert decision.limits["b"].cpu_cores == pytest.approx(0.5**0.7, rel=0.01)
    assert decision.next_s == 1.0


def test_what_does_not_fit_is_scaled_onto_the_node_above_the_floor() -> None:
    seen = snapshot(service("a", 8.0), service("b", 8.0), capacity=2.0)
    decision = load(NAME).decide(seen, ProportionalMemory((("a", 1.0), ("b", 0.05))))
    cores = [decision.limits[name].cpu_cores for name in "ab"]
    assert sum(one or 0.0 for one in cores) == pytest.approx(2.0)
    assert cores[1] is not None and cores[1] > 0.05, "nobody falls below the floor"


def test_nothing_measured_changes_nothing_and_the_first_ceiling_is_a_fair_share() -> None:
    seen = snapshot(service("a", None), service("b", None))
    assert [one.cpu_cores for one in load(NAME).decide(seen, None).limits.values()] == [2.0, 2.0]
    assert [one.cpu_cores for one in load(NAME).decide(seen, BEFORE).limits.values()] == [1.0, 1.0]

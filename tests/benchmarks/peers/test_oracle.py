"""The oracle: shortest way to the first tier first, and how it is spelled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.peers import oracle
from dlsched.model.errors import PolicyError
from dlsched.model.spec import Bounds
from dlsched.model.state import Reached, Tiers
from dlsched.policies.registry import load
from tests.benchmarks.peers.seen import snapshot, training

WORKS = {"long": 30.0, "short": 8.0, "there": 5.0}


def test_the_shortest_way_to_the_first_tier_goes_first_and_who_is_there_last() -> None:
    there = replace(training("there", 6.0), tiers=Tiers(delivered=Reached(1.0, 10)))
    jobs = [training("long", 23.0), training("short", 0.0), there]
    decision = load(oracle.spelled(WORKS)).decide(snapshot(*jobs), None)
    order = sorted(decision.weights, key=decision.weights.__getitem__, reverse=True)
    assert order == ["long", "short", "there"]
    assert {one.cpu_cores for one in decision.limits.values()} == {None}
    assert decision.why == {
        "long": "7 core-s to it",
        "short": "8 core-s to it",
        "there": "at its first tier",
    }


def test_in_the_idle_class_all_but_the_next_are_held_to_their_floors() -> None:
    jobs = [replace(training(name, 0.0), can_idle=True) for name in ("short", "there", "long")]
    decision = load(oracle.spelled(WORKS)).decide(snapshot(*jobs), None)
    limits = {name: one.cpu_cores for name, one in decision.limits.items()}
    assert limits == {"there": None, "short": None, "long": Bounds().floor_cores}


@pytest.mark.parametrize("works", ["a:0", "a:-1", "a", "a:b"])
def test_works_that_are_none_are_refused(works: str) -> None:
    with pytest.raises(PolicyError):
        load(f"{oracle.NAME}?works={works}")

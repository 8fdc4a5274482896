"""The recommender: what was mostly used, and a margin."""

from __future__ import annotations

import pytest

from benchmarks.peers.vpa import VpaMemory, bucket_of
from dlsched.policies.registry import load
from tests.benchmarks.peers.seen import service, snapshot

NAME = "benchmarks.peers.vpa:VpaPolicy"


def test_a_ceiling_is_what_was_mostly_used_and_a_margin_whatever_the_target() -> None:
    policy, memory = load(NAME), None
    for second in range(20):
        seen = snapshot(service("a", 5.0, used=1.0), service("b", 0.1, used=0.2), now_s=second)
        decision = policy.decide(seen, memory)
        memory = decision.memory
    assert decision.limits["a"].cpu_cores == pytest.approx(1.15, rel=0.06)
    assert decision.limits["b"].cpu_cores == pytest.approx(0.23, rel=0.06)


def test_old_samples_fade() -> None:
    policy = load(NAME)
    memory = VpaMemory((("a", ((bucket_of(2.0), 20.0),)),), 0.0)
    soon = policy.decide(snapshot(service("a", 1.0, used=0.5), now_s=1.0), memory)
    late = policy.decide(snapshot(service("a", 1.0, used=0.5), now_s=600.0), memory)
    assert soon.limits["a"].cpu_cores == pytest.approx(2.3, rel=0.06)
    assert late.limits["a"].cpu_cores == pytest.approx(0.575, rel=0.06)

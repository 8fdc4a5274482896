from __future__ import annotations

import pytest

from dlsched.model.spec import Bounds
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot


def test_the_policy_divides_by_weight_and_says_so() -> None:
    seen = snapshot(
        job("a", weight=3), job("b"), job("c", None, bounds=Bounds(0.01, 0.2)), capacity=2.2
    )
    decision = load("fair").decide(seen, None)
    assert {name: one.cpu_cores for name, one in decision.limits.items()} == pytest.approx(
        {"a": 1.5, "b": 0.5, "c": 0.2}
    )
    assert decision.why["a"] == "its share by weight (3 of 5 in all) is 1.500 cores"
    assert load("fair").traits.reserves
    assert not load("fair").traits.heeds_progress

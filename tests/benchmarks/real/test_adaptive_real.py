"""How long the comparison takes, what it runs, and that whatever is kept is judged."""

from __future__ import annotations

import pytest

from benchmarks.real.adaptive_real import (
    POLICIES,
)
from dlsched.policies.registry import load


@pytest.mark.parametrize("policy", sorted({one for many in POLICIES.values() for one in many}))
def test_every_policy_of_the_comparison_can_be_loaded(policy):
    assert callable(load(policy).decide)

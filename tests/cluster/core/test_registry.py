from __future__ import annotations

import pytest

from dlsched.cluster.core.policies.spread import SpreadPolicy
from dlsched.cluster.core.registry import load
from dlsched.model.errors import PolicyError
from tests.cluster.core.plant import job, node, snapshot

OWN = "dlsched.cluster.core.policies.spread:SpreadPolicy"


@pytest.mark.parametrize("name", ["spread", OWN])
def test_by_name_and_by_class(name: str) -> None:
    policy = load(name)
    assert isinstance(policy, SpreadPolicy)
    assert dict(policy.decide(snapshot([node("a")], [job("q")]), None).place) == {"q": "a"}


@pytest.mark.parametrize(
    ("spelled", "why"),
    [
        ("fair", r"no policy 'fair'; known are .*spread, or module:Class"),
        ("dlsched.cluster.core.snapshot:Move", "has no Parameters, decide; see"),
        ("spread?alpha=1", "policy spread: no parameter 'alpha'; the policy has no parameters"),
    ],
)
def test_what_is_no_policy_of_the_cluster_is_refused_in_one_line(spelled: str, why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        load(spelled)

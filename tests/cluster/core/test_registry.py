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


def test_policies_of_one_node_are_none_of_the_cluster() -> None:
    with pytest.raises(PolicyError, match=r"no policy 'fair'; known are .*spread, or module:Class"):
        load("fair")


def test_what_is_no_policy_has_its_missing_parts_listed() -> None:
    with pytest.raises(PolicyError, match="has no Parameters, decide; see"):
        load("dlsched.cluster.core.model:Move")


def test_an_unknown_parameter_has_one_line() -> None:
    with pytest.raises(PolicyError, match="policy spread: no parameter 'alpha'; it has none"):
        load("spread?alpha=1")

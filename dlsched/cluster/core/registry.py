"""Finds the policies of the cluster by name, by the rules of `dlsched.policies.registry`.

A user's own policy is an entry point of the group `dlsched.cluster_policies`, or is named
`module:Class`. Parameters may follow the name: `specon?alpha=0.05`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dlsched.cluster.core.snapshot import ClusterPolicy
from dlsched.policies.registry import Group, build, first_line

CLUSTER = Group(
    entry_points="dlsched.cluster_policies",
    parts=("Parameters", "decide"),
    example="dlsched/cluster/core/policies/spread.py",
    summary=first_line,
)


def load(
    spelled: str, options: Mapping[str, object] | None = None, group: Group = CLUSTER
) -> ClusterPolicy:
    """The policy of `spelled`, with its parameters and those of `options`. Raises PolicyError in
    one line."""
    return cast("ClusterPolicy", build(spelled, options, group))

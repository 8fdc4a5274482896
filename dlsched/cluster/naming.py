"""Nodes as people know them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def host_names(hosts: Mapping[str, str]) -> dict[str, str]:
    """The host's name of each node, where only that node has it; else the node's own. `hosts`: by
    node, empty where it is not known."""
    counts = Counter(hosts.values())
    return {node: host if host and counts[host] == 1 else node for node, host in hosts.items()}

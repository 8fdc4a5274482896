"""The port of the nodes' agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dlsched.cluster.core.records import Order
from dlsched.cluster.core.reports import NodeReport


class Agents(Protocol):
    """Nothing blocks or raises: what came of an order shows in later reports."""

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        """The node's present report; None: no answer. `placed` confirms which jobs are its own, by
        their epoch."""
        ...

    def send(self, order: Order) -> None:
        """Send an order, which may be lost. The agent follows it once, however often it comes."""
        ...

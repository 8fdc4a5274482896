"""The network between the cluster's controller and simulated agents: latency, loss, and nodes that
die or are cut off."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dlsched.cluster.core.records import Order, Phase
from dlsched.cluster.core.reports import NodeReport
from dlsched.simulation.cluster.agent import Kept, SimulatedAgent, SimulatedNode
from dlsched.simulation.node.workloads import Trace

HeldState = tuple[int, Phase]
"""Epoch and phase of a job in an agent's files."""


@dataclass(frozen=True, slots=True)
class NodeFault:
    """Something that goes wrong with a node."""

    kind: Literal["dead", "agent", "cut"]
    """The host fails; its agent alone does; no message comes through, in either direction."""
    node: str
    at_s: float
    for_s: float = math.inf

    def holds(self, now_s: float) -> bool:
        return self.at_s <= now_s < self.at_s + self.for_s


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    latency_s: float = 0.05
    """Mean of an order's time to the agent; exponential, so that orders overtake each other."""
    loss: float = 0.0
    """Chance that an order, or the answer to a report request, is lost."""
    faults: Sequence[NodeFault] = ()


class SimulatedAgents:
    """The port Agents, over simulated nodes."""

    def __init__(self, trace: Trace, policy: str, seed: int, options: NetworkOptions) -> None:
        self.now_s = 0.0
        self.nodes = {own.name: SimulatedNode(trace, own, policy, seed) for own in trace.nodes}
        self.storage: dict[str, Kept] = {}
        """Checkpoints in storage that every node has, by job."""
        self.agents = {
            name: SimulatedAgent(node, self._fetch, trace.network_bytes_per_s, self.storage)
            for name, node in self.nodes.items()
        }
        self.orders: list[Order] = []
        """Every order that was sent, for tests."""
        self.sent: Callable[[Order], None] = lambda _: None
        self.followed: Callable[[Order, HeldState | None, HeldState | None], None] = lambda *_: None
        """What the agent held of the job before and after it got the order."""
        self._options = options
        self.heard_s: dict[str, float] = {}
        """When the last answer came, by node."""
        self._chance = random.Random(f"{seed}/network")
        self._sent: list[tuple[float, int, Order]] = []
        self._down: dict[str, bool] = {}
        """Whether the host is down, too, by node whose agent is."""
        self._changes_s = sorted(
            at_s for one in options.faults for at_s in (one.at_s, one.at_s + one.for_s)
        )

    # ------------------------------------------------------------------ port

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        if not self._answers(node) or self._is_lost():
            return None
        report = self.agents[node].report(placed, self.now_s, self.heard_s.get(node))
        if self._is_lost():
            return None
        self.heard_s[node] = self.now_s
        return report

    def send(self, order: Order) -> None:
        self.orders.append(order)
        self.sent(order)
        if self._is_lost():
            return
        wait_s = self._options.latency_s
        delay_s = self._chance.expovariate(1.0 / wait_s) if wait_s else 0.0
        heapq.heappush(self._sent, (self.now_s + delay_s, len(self.orders), order))

    # ------------------------------------------------------------------ time

    def next_s(self) -> float:
        """When something here changes by itself."""
        coming = [self._sent[0][0]] if self._sent else []
        # A step that is overdue waits for its agent, which is down.
        due_s = [agent.next_s() for agent in self.agents.values()]
        coming += [at_s for at_s in due_s if at_s > self.now_s]
        coming += [at_s for at_s in self._changes_s if at_s > self.now_s][:1]
        return min(coming, default=math.inf)

    def run_until(self, until_s: float) -> None:
        """Let all nodes go on to that time, and deliver what is due then."""
        for name, node in self.nodes.items():
            node.run_until(until_s, agent_runs=not self._has("agent", "dead", name))
        self.now_s = until_s
        self._fail()
        while self._sent and self._sent[0][0] <= until_s:
            _, _, order = heapq.heappop(self._sent)
            if self._answers(order.node):
                self._follow(order)
        for name, agent in self.agents.items():
            if not self._has("agent", "dead", name):
                # Its node's controller ends and starts what the step calls for.
                agent.step(until_s)
                agent.node.run_until(until_s)
                agent.step(until_s)

    def is_up(self, node: str) -> bool:
        """Whether the store's heartbeats come through."""
        return not self._has("dead", "cut", node)

    def is_cut_off(self, node: str) -> bool:
        """Whether its agent runs, and no message comes through."""
        return self._has("cut", "cut", node) and not self._has("agent", "dead", node)

    def _follow(self, order: Order) -> None:
        agent = self.agents[order.node]
        before = agent.held.get(order.job)
        was = (before.epoch, before.phase) if before else None
        agent.follow(order, self.now_s)
        after = agent.held.get(order.job)
        self.followed(order, was, (after.epoch, after.phase) if after else None)

    def _fail(self) -> None:
        """Begin and end the faults that are due."""
        for name, node in self.nodes.items():
            is_down = self._has("agent", "dead", name)
            if is_down and name not in self._down:
                self._down[name] = self._has("dead", "dead", name)
                if self._down[name]:
                    node.runtime.power_off()
            elif not is_down and name in self._down:
                node.restart()
                self.agents[name].restart(self.now_s, host_started=self._down.pop(name))

    def _has(self, kind: str, other: str, node: str) -> bool:
        return any(
            one.node == node and one.kind in (kind, other) and one.holds(self.now_s)
            for one in self._options.faults
        )

    def _answers(self, node: str) -> bool:
        return not self._has("dead", "agent", node) and not self._has("cut", "cut", node)

    def _is_lost(self) -> bool:
        return self._options.loss > 0.0 and self._chance.random() < self._options.loss

    def _fetch(self, node: str, job: str, epoch: int) -> Kept | None:
        return self.agents[node].keeps(job, epoch) if self._answers(node) else None

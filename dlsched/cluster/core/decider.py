"""Asks a cluster policy when it is due, applies the guards, and keeps the memory of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.cluster.core.asking import ask
from dlsched.cluster.core.guards import Approved, GuardMemory, guard
from dlsched.cluster.core.model import (
    Alternative,
    ClusterDecision,
    ClusterMemory,
    ClusterPolicy,
    ClusterSnapshot,
    Move,
)


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """What is to be done, after the guards."""

    approved: Approved = field(default_factory=Approved)
    why: dict[str, str] = field(default_factory=dict)
    asked: bool = False
    failure: str | None = None
    forecasts_s: Mapping[str, float] = field(default_factory=dict)
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    """Both as in the decision."""


class ClusterDecider:
    """One policy with its memory. `ask` may be called in every round and never raises."""

    def __init__(self, name: str, policy: ClusterPolicy) -> None:
        self.name = name
        self._policy = policy
        self._memory: ClusterMemory | None = None
        self._guards = GuardMemory()
        self._ask_at_s = 0.0
        self._known: object = None

    def due_in_s(self, now_s: float) -> float:
        """Seconds until the policy is asked again."""
        return self._ask_at_s - now_s

    def by_hand(self, snapshot: ClusterSnapshot, moves: Sequence[Move]) -> Approved:
        """A person's moves, which keep the rules of safety alone. The policy is not asked."""
        decision = ClusterDecision(moves=tuple(moves))
        approved = guard(snapshot, decision, self._guards, by_hand=True)
        self._guards = approved.memory
        return approved

    def ask(self, snapshot: ClusterSnapshot) -> ClusterAnswer:
        """The approved decision. An arrival, an exit or a changed node makes the policy due."""
        present = _present_in(snapshot)
        if snapshot.now_s < self._ask_at_s and present == self._known:
            return ClusterAnswer()
        self._known = present
        asked = ask(self._policy, snapshot, self._memory)
        decision = asked.decision
        approved = guard(snapshot, decision, self._guards)
        self._memory, self._guards = decision.memory, approved.memory
        self._ask_at_s = snapshot.now_s + decision.next_s
        return ClusterAnswer(
            approved,
            dict(decision.why),
            True,
            asked.failure,
            decision.forecasts_s,
            decision.alternatives,
        )


def _present_in(snapshot: ClusterSnapshot) -> object:
    """The jobs and nodes there, and whether these take jobs: a change makes a policy due."""
    return (
        tuple(job.name for job in (*snapshot.jobs, *snapshot.queue)),
        tuple((node.name, node.state) for node in snapshot.nodes),
    )

"""Asks a cluster policy when it is due, and keeps its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dlsched.cluster.core.model import (
    ClusterDecision,
    ClusterMemory,
    ClusterPolicy,
    ClusterSnapshot,
    NodeState,
)

Guard = Callable[[ClusterSnapshot, ClusterDecision], ClusterDecision]
"""What every policy is held to: the decision without what is not allowed."""


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    decision: ClusterDecision | None = None
    """None: it was not due, or failed."""
    failure: str = ""


class ClusterDecider:
    """One policy with its memory. `ask` may be called in every round and never raises."""

    def __init__(self, name: str, policy: ClusterPolicy, guard: Guard) -> None:
        self.name = name
        self._policy = policy
        self._guard = guard
        self._memory: ClusterMemory | None = None
        self._ask_at_s = 0.0
        self._known: object = None
        self.next_s = 0.0

    def ask(self, snapshot: ClusterSnapshot) -> ClusterAnswer:
        """The decision, after the guards. An arrival, an exit or a changed node makes it due."""
        present = (
            tuple(job.name for job in snapshot.jobs),
            tuple((node.name, node.state) for node in snapshot.nodes),
        )
        if snapshot.now_s < self._ask_at_s and not snapshot.queue and present == self._known:
            return ClusterAnswer()
        self._known = present
        try:
            decision = self._policy.decide(snapshot, self._memory)
            approved = self._guard(snapshot, decision)
        except Exception as error:  # noqa: BLE001  a policy is arbitrary code: jobs stay
            return ClusterAnswer(failure=f"{type(error).__name__}: {error}")
        self._memory = decision.memory
        self._ask_at_s = snapshot.now_s + decision.next_s
        return ClusterAnswer(approved)


def known_only(snapshot: ClusterSnapshot, decision: ClusterDecision) -> ClusterDecision:
    """The least guard: queued jobs to ready nodes, and moves of jobs that can be moved."""
    ready = {node.name for node in snapshot.nodes if node.state is NodeState.READY}
    queued = {job.name for job in snapshot.queue}
    moving = {transit.job for transit in snapshot.moving}
    movable = {job.name: job.node for job in snapshot.jobs if job.unmovable is None}
    return replace(
        decision,
        place={job: on for job, on in decision.place.items() if job in queued and on in ready},
        moves=tuple(
            move
            for move in decision.moves
            if move.job in movable.keys() - moving
            and move.target in ready
            and move.target != movable[move.job]
        ),
    )

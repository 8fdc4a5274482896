"""Policies of the cluster without some of their moves, to see what those are good for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar

from dlsched.cluster.core.model import (
    ClusterDecision,
    ClusterMemory,
    ClusterPolicy,
    ClusterSnapshot,
)


class WithoutMoves:
    """The same policy, whose moves of these jobs are not carried out; None: of all."""

    Parameters: ClassVar[type[Any]] = object

    def __init__(self, policy: ClusterPolicy, jobs: Collection[str] | None = None) -> None:
        self._policy = policy
        self._jobs = jobs

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        decision = self._policy.decide(snapshot, memory)
        jobs = self._jobs
        return replace(
            decision,
            moves=tuple(
                move for move in decision.moves if jobs is not None and move.job not in jobs
            ),
        )

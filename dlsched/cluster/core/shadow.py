"""A second policy that is asked about the rounds of the acting one, and applied to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dlsched.cluster.core.decider import ClusterAnswer, DeciderState, decided
from dlsched.cluster.core.model import ClusterMemory, ClusterPolicy, ClusterSnapshot, Move

STAYS = "-"
"""Neither placed nor moved."""


class Acts(Protocol):
    """The placements and moves of a decision."""

    @property
    def place(self) -> Mapping[str, str]: ...
    @property
    def moves(self) -> tuple[Move, ...]: ...


class Otherwise(NamedTuple):
    """One job for which the shadow decided otherwise: two of `actions`, or `STAYS`."""

    job: str
    done: str
    would: str
    node: str | None
    """Where it ran."""
    why: str
    """The reason of the shadow."""


@dataclass(frozen=True, slots=True)
class Shadowed:
    """What a shadow policy answered about one round."""

    policy: str
    answer: ClusterAnswer
    new: tuple[Otherwise, ...] = ()
    """What it had not decided in the round before."""


class ClusterShadow:
    """One policy with its memory, asked when the acting one is. Guards remember the moves that were
    truly made, so it shows single decisions, not the history that they would cause."""

    def __init__(self, name: str, policy: ClusterPolicy) -> None:
        self.name = name
        self._policy = policy
        self._memory: ClusterMemory | None = None
        self._failures = 0
        self._wanted: dict[str, str] = {}
        """What it alone would have done, by job, until the acting policy does something."""
        self.same = self.different = self.failed = 0
        """Placements and moves that both decided, those that one decided or both differently, and
        rounds in which it failed."""

    def ask(self, snapshot: ClusterSnapshot, acting: ClusterAnswer) -> Shadowed:
        """Its answer about a round in which the acting policy was asked."""
        before = DeciderState(self._memory, acting.before.guards, self._failures)
        answer, after, _ = decided(self._policy, snapshot, before)
        self._memory, self._failures = after.memory, after.failures
        if answer.failure is not None:
            self.failed += 1
            return Shadowed(self.name, answer)
        return Shadowed(self.name, answer, self._compared(snapshot, acting, answer))

    def _compared(
        self, snapshot: ClusterSnapshot, acting: ClusterAnswer, answer: ClusterAnswer
    ) -> tuple[Otherwise, ...]:
        done, would = actions(acting.approved), actions(answer.approved)
        on = {job.name: job.node for job in (*snapshot.jobs, *snapshot.queue)}
        self._wanted = {job: one for job, one in self._wanted.items() if job in on}
        found = []
        for job in sorted(done.keys() | would.keys()):
            was, now = done.get(job, STAYS), would.get(job, STAYS)
            if was != STAYS:
                self._wanted.pop(job, None)
            else:
                known = job in self._wanted
                self._wanted[job] = now
                if known:
                    continue
            if was == now:
                self.same += 1
                continue
            why = answer.approved.refused.get(job, "") or answer.why.get(job, "")
            found.append(Otherwise(job, was, now, on.get(job), why))
        self.different += len(found)
        return tuple(found)


def actions(decision: Acts) -> dict[str, str]:
    """The node by job: where it is placed, or moves to."""
    moved = {move.job: f"{'back ' if move.undo else ''}> {move.target}" for move in decision.moves}
    return {**decision.place, **moved}

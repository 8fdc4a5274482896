"""Asks a cluster policy when it is due, applies the guards, and keeps the memory of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlsched.cluster.core.guards import Approved, Passed, guard
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.snapshot import (
    FORECAST_MAX_S,
    Alternative,
    ClusterDecision,
    ClusterMemory,
    ClusterPolicy,
    ClusterSnapshot,
    Move,
)
from dlsched.model.errors import PolicyError, unexpected
from dlsched.model.units import shown

NEXT_MIN_S, NEXT_MAX_S = 0.1, 3600.0

_FALLBACK = SpreadPolicy(SpreadParameters())


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """What a policy answered, or `spread` in its place, and what of it is to be done."""

    decision: ClusterDecision = field(default_factory=ClusterDecision)
    """Its memory is the policy's own, as it was before if it failed."""
    failure: str | None = None
    approved: Approved = field(default_factory=Approved)
    """After the guards."""
    asked: bool = False


def ask(
    policy: ClusterPolicy, snapshot: ClusterSnapshot, memory: ClusterMemory | None = None
) -> ClusterAnswer:
    """The policy's decision. If it raises or answers nonsense, jobs are placed by `spread`, none
    moves but off draining nodes, and the policy is asked again next time. Never raises for
    a policy that does."""
    try:
        decision = policy.decide(snapshot, memory)
        refuse_nonsense(decision)
    except Exception as error:  # noqa: BLE001  a policy is arbitrary code
        failure = f"the cluster policy failed: {_described(error)}"
        instead = _FALLBACK.decide(snapshot, None)
        why = {name: f"{text} ({failure})" for name, text in instead.why.items()}
        return ClusterAnswer(replace(instead, why=why, memory=memory), failure, asked=True)
    return ClusterAnswer(decision, asked=True)


def _described(error: BaseException) -> str:
    """What a policy raised, in one bounded line. Never raises."""
    try:
        return unexpected(error)
    except BaseException:  # noqa: BLE001  its text is the policy's own code, too
        return type(error).__name__


def refuse_nonsense(decision: object) -> None:
    """Raise PolicyError unless it is a decision with values of the right types. Whether its nodes
    and jobs exist is for the guards."""
    if not isinstance(decision, ClusterDecision):
        raise PolicyError(f"`decide` returned {shown(repr(decision))}, must be a ClusterDecision")
    for name, texts in (("place", decision.place), ("why", decision.why)):
        if not isinstance(texts, Mapping) or not all(
            isinstance(key, str) and isinstance(value, str) for key, value in texts.items()
        ):
            raise PolicyError(f"{name} must be a mapping of texts by job")
    for move in decision.moves:
        if not (isinstance(move, Move) and isinstance(move.job, str)) or not isinstance(
            move.target, str
        ):
            raise PolicyError(f"{shown(repr(move))} is not a Move")
    for job, later_s in decision.forecasts_s.items():
        if not _is_seconds(later_s):
            raise PolicyError(f"forecasts_s of {shown(str(job))} must be a number of seconds")
    for others in decision.alternatives.values():
        if not isinstance(others, tuple) or not all(map(_is_alternative, others)):
            raise PolicyError("alternatives must be tuples of Alternatives by job")
    moved = [move.job for move in decision.moves]
    if len(set(moved)) < len(moved):
        raise PolicyError("the decision moves a job twice")
    next_s: object = decision.next_s
    if not isinstance(next_s, int | float) or not NEXT_MIN_S <= next_s <= NEXT_MAX_S:
        raise PolicyError(f"next_s is {next_s}, must be {NEXT_MIN_S} to {NEXT_MAX_S:.0f}")


def _is_alternative(value: object) -> bool:
    return (
        isinstance(value, Alternative)
        and isinstance(value.node, str)
        and isinstance(value.refused, str)
        and (value.gain_s is None or _is_seconds(value.gain_s))
    )


def _is_seconds(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= FORECAST_MAX_S


class ClusterDecider:
    """One policy with its memory. `ask` may be called in every round and never raises."""

    def __init__(self, name: str, policy: ClusterPolicy) -> None:
        self.name = name
        self._policy = policy
        self._memory: ClusterMemory | None = None
        self._passed: tuple[Passed, ...] = ()
        """Moves of the last hour."""
        self._ask_at_s = 0.0
        self._known: object = None

    def due_in_s(self, now_s: float) -> float:
        """Seconds until the policy is asked again."""
        return self._ask_at_s - now_s

    def by_hand(self, snapshot: ClusterSnapshot, moves: Sequence[Move]) -> Approved:
        """A person's moves, which keep the rules of safety alone. The policy is not asked."""
        decision = ClusterDecision(moves=tuple(moves))
        approved = guard(snapshot, decision, self._passed, by_hand=True)
        self._passed = approved.passed
        return approved

    def ask(self, snapshot: ClusterSnapshot) -> ClusterAnswer:
        """The approved decision. An arrival, an exit or a changed node makes the policy due."""
        present = _present_in(snapshot)
        if snapshot.now_s < self._ask_at_s and present == self._known:
            return ClusterAnswer()
        self._known = present
        answer = ask(self._policy, snapshot, self._memory)
        approved = guard(snapshot, answer.decision, self._passed)
        self._memory, self._passed = answer.decision.memory, approved.passed
        self._ask_at_s = snapshot.now_s + answer.decision.next_s
        return replace(answer, approved=approved)


def _present_in(snapshot: ClusterSnapshot) -> object:
    """The jobs and nodes there, and whether these take jobs: a change makes a policy due."""
    return (
        tuple(job.name for job in (*snapshot.jobs, *snapshot.queue)),
        tuple((node.name, node.state) for node in snapshot.nodes),
    )

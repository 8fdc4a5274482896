"""Asks a policy again about recorded rounds of the cluster's controller. What nodes and jobs would
have done under another decision is not simulated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from dlsched.cluster.core.decider import DeciderState, decided
from dlsched.cluster.core.model import ClusterPolicy
from dlsched.cluster.core.registry import load
from dlsched.cluster.core.shadow import STAYS, actions
from dlsched.cluster.journal import Decided, RecordedRound, decided_of
from dlsched.model.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Difference:
    """One job for which the decisions of one round differ."""

    row: int
    round: int
    wall_time: str
    job: str
    done: str
    would: str
    why: str
    """The reason of the replayed policy."""


class ClusterReplay:
    """One pass over recorded rounds, in order. Guards remember the moves that were truly made.

    Without a policy of its own, it asks the recorded one, with the memory that it had: then the
    whole decision counts, with its reasons. Another policy begins without memory, keeps its own,
    and only placements and moves count.
    """

    def __init__(self, policy: str | None = None) -> None:
        """Raises PolicyError."""
        self.policy = policy
        self._own = None if policy is None else load(policy)
        self._loaded: dict[str, ClusterPolicy] = {}
        self._state = DeciderState()
        self._last_s: float | None = None
        self.rounds = self.acted = self.same = self.failures = 0
        """Rounds that were asked about; of these, those in which something was placed or moved,
        those with the same decision, and those in which the policy failed."""
        self.unasked: dict[str, int] = {}
        """How often the recorded policy could not be asked, by reason."""
        self.versions: set[str] = set()
        """Of the dlsched that decided."""

    def take(self, recorded: RecordedRound) -> tuple[Difference, ...]:
        """What differs in that round."""
        try:
            policy, before = self._asked(recorded)
        except (PolicyError, ValueError) as error:
            why = " ".join(str(error).split())
            self.unasked[why] = self.unasked.get(why, 0) + 1
            return ()
        answer, self._state, _ = decided(policy, recorded.snapshot, before)
        would, done = decided_of(answer), recorded.decided
        self.rounds += 1
        self.versions.add(recorded.version)
        self.failures += would.failure is not None
        self.acted += bool(done.place or done.moves)
        found = tuple(self._differences(recorded, done, would))
        self.same += not found
        return found

    def _asked(self, recorded: RecordedRound) -> tuple[ClusterPolicy, DeciderState]:
        now_s, last_s = recorded.snapshot.now_s, self._last_s
        self._last_s = now_s
        if self._own is not None:
            if last_s is not None and now_s < last_s:
                self._state = DeciderState()  # the host has started again
            kept = self._state
            return self._own, DeciderState(kept.memory, recorded.guards, kept.failures)
        policy = self._recorded(recorded.policy, recorded.options)
        memory = None
        if recorded.memory is not None:
            kind: Any = getattr(policy, "Memory", None)
            if kind is None:
                raise PolicyError(f"policy {recorded.policy} does not say the type of its Memory")
            memory = TypeAdapter(kind).validate_python(recorded.memory)
        return policy, DeciderState(memory, recorded.guards, recorded.failures)

    def _recorded(self, spelled: str, options: Mapping[str, Any]) -> ClusterPolicy:
        key = json.dumps([spelled, options], sort_keys=True)
        if key not in self._loaded:
            self._loaded[key] = load(spelled, options)
        return self._loaded[key]

    def _differences(
        self, recorded: RecordedRound, done: Decided, would: Decided
    ) -> Iterator[Difference]:
        was, now = actions(done), actions(would)
        exact = self._own is None
        jobs = was.keys() | now.keys()
        if exact:
            jobs |= done.refused.keys() | would.refused.keys() | done.why.keys() | would.why.keys()
        for job in sorted(jobs):
            before, after = was.get(job, STAYS), now.get(job, STAYS)
            if before != after or (exact and _reason(done, job) != _reason(would, job)):
                yield Difference(
                    recorded.row,
                    recorded.snapshot.round,
                    recorded.wall_time,
                    job,
                    before,
                    after,
                    _reason(would, job),
                )


def _reason(decided: Decided, job: str) -> str:
    return decided.refused.get(job, "") or decided.why.get(job, "")

"""A policy being asked: when it is due, what it remembers, and what holds when it fails.

Owns that once, for the policy that acts, for a shadow and for a replay. It must not know a clock,
a runtime or a file: the time comes with the snapshot, and what is to be logged is left to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from dlsched.control.guards import GuardOptions, guard, refuse_nonsense
from dlsched.model.cycle import Shadow
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.forecast import Forecast
from dlsched.model.spec import JobSpec, Limits
from dlsched.model.state import Snapshot
from dlsched.policies.gpu_node import places
from dlsched.policies.protocol import Policy, heeds_progress

ASKS_PER_MEASURE = 30
"""A memory is measured once in so many asks, and whenever jobs came or went: to write all of it
down takes as long as to decide."""

FAILURES_UNTIL_PLAIN = 3
"""After so many failures in a row the policy is no longer asked, and ceilings are given back."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy under the name that the operator knows it by."""

    name: str
    policy: Policy


CheckMemory = Callable[[object, int], None]
"""Raises PolicyError for a memory that cannot be kept, or is too large for so many jobs."""


def unchecked(memory: object, jobs: int) -> None:
    """Any memory will do."""


class Decider:
    """One policy with its memory; `decide` may be called in every cycle, and never raises.

    `check_memory` is asked whether what it remembers can be kept. `asks` and `failures` count since
    the beginning; `failed_in_a_row` since its last answer.
    """

    def __init__(
        self,
        named: NamedPolicy,
        memory: PolicyMemory | None = None,
        check_memory: CheckMemory = unchecked,
    ) -> None:
        self._named = named
        self._memory = memory
        self._check_memory = check_memory
        self._ask_at_s = 0.0
        self._unmeasured = ASKS_PER_MEASURE
        """Asks since its memory was last measured."""
        self.asks = self.failures = self.failed_in_a_row = 0
        self.failure: str | None = None
        """How it failed when it was last asked, in one line; None: it answered."""
        self.error: Exception | None = None
        """What it raised in the present cycle, or why its answer was refused."""
        self.why: Mapping[str, str] = {}
        """The reasons of its last decision, by job."""
        self.weights: Mapping[str, float] = {}
        """Those of its last decision."""
        self.outlooks: Mapping[str, tuple[Forecast, ...]] = {}
        """Those of its last decision; none while it fails."""

    @property
    def name(self) -> str:
        """The policy's name."""
        return self._named.name

    @property
    def plain(self) -> bool:
        """Whether it failed too often to be asked again: plain Docker is decided in its place."""
        return self.failed_in_a_row >= FAILURES_UNTIL_PLAIN

    @property
    def reserves(self) -> bool:
        """Whether the sum of ceilings is held within capacity."""
        return self._named.policy.reserves and not self.plain

    @property
    def heeds_progress(self) -> bool:
        """Whether a blind job gets a stated share instead of what is decided for it."""
        return heeds_progress(self._named.policy) and not self.plain

    def use(self, named: NamedPolicy) -> None:
        """Another policy from now on; past failures are forgiven, memory is kept under one name."""
        if named.name != self.name:
            self._memory = None
            self.weights, self.outlooks = {}, {}
        self._named = named
        self._unmeasured = ASKS_PER_MEASURE
        self._ask_at_s, self.failed_in_a_row, self.failure = 0.0, 0, None

    def decide(self, snapshot: Snapshot) -> Decision | None:
        """Ask the policy when it is time; None when it is not, or when it failed."""
        self.error = None
        if self.plain:
            names = [job.name for job in snapshot.running]
            self.why = dict.fromkeys(names, f"plain Docker: {self.failure}")
            self.weights, self.outlooks = {}, {}
            return Decision(dict.fromkeys(names, Limits()), self.why, self._memory)
        if snapshot.now_s < self._ask_at_s and not snapshot.wakes:
            return None
        self.asks += 1
        try:
            decision = self._named.policy.decide(snapshot, self._memory)
            refuse_nonsense(decision, {job.name for job in snapshot.jobs})
            self._measure(decision.memory, snapshot)
            why = dict(decision.why)
        except Exception as error:  # noqa: BLE001  a policy is anybody's code: limits stay
            self.failures += 1
            self.failed_in_a_row += 1
            self.failure = f"policy {self.name} failed: {type(error).__name__}: {error}"
            self.error = error
            self.outlooks = {}
            return None
        self.failed_in_a_row, self.failure = 0, None
        self._memory, self.why = decision.memory, why
        self.weights, self.outlooks = decision.weights, decision.outlooks
        self._ask_at_s = snapshot.now_s + decision.next_s
        return decision

    def _measure(self, memory: PolicyMemory | None, snapshot: Snapshot) -> None:
        self._unmeasured += 1
        if snapshot.wakes or self._unmeasured >= ASKS_PER_MEASURE:
            self._check_memory(memory, places(snapshot))
            self._unmeasured = 0


class ShadowDecider:
    """A policy asked beside the one that acts: what it would do next, from the real state.

    What is measured, and the limits in force, are what the acting policy brought about; only
    `desired` is the shadow's own last decision. So it tells single decisions, not the history
    that would have come of them.
    """

    def __init__(
        self,
        named: NamedPolicy,
        memory: PolicyMemory | None = None,
        check_memory: CheckMemory = unchecked,
    ) -> None:
        self.decider = Decider(named, memory, check_memory)
        self._desired: Mapping[str, Limits] = {}

    def use(self, named: NamedPolicy) -> None:
        """Another policy from now on."""
        if named.name != self.decider.name:
            self._desired = {}
        self.decider.use(named)

    def look(
        self,
        snapshot: Snapshot,
        options: GuardOptions,
        starts: Sequence[JobSpec] = (),
        placements: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> Shadow:
        """What it would have done in this cycle, under the guards that hold for all."""
        # A container that stopped starts anew under limits that are nobody's decision.
        running = {job.name for job in snapshot.running}
        self._desired = {name: own for name, own in self._desired.items() if name in running}
        jobs = (
            replace(job, desired=self._desired.get(job.name, job.desired)) for job in snapshot.jobs
        )
        seen = replace(snapshot, jobs=tuple(jobs))
        asked = self.decider
        decision = asked.decide(seen)
        guarded = guard(
            seen,
            decision or Decision(),
            options,
            reserves=asked.reserves,
            heeds_progress=asked.heeds_progress,
            starts=starts,
            placements=placements,
        )
        if decision is not None:
            self._desired = guarded.limits
        return Shadow(
            policy=asked.name,
            decision=decision,
            limits=guarded.limits,
            why=asked.why,
            guarded=guarded.notes,
            trouble=f"no longer asked: {asked.failure}" if asked.plain else asked.failure,
        )

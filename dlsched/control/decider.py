"""Asks a policy when it is due, keeps its memory, and handles its failures. Used for the acting
policy, a shadow and replays. The caller logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dlsched.control.guards import GuardOptions, guard_limits, refuse_nonsense
from dlsched.control.ledger.updated import State
from dlsched.model.cycle import Shadow
from dlsched.model.decision import Answer, Decision, Failure, PolicyMemory, PolicyTraits
from dlsched.model.forecast import Forecast
from dlsched.model.spec import JobSpec, Limits
from dlsched.model.state import Snapshot
from dlsched.model.units import render_cores
from dlsched.policies.gpu_node import places
from dlsched.policies.protocol import Policy

ASKS_PER_MEASURE = 30
"""The size of a memory is checked once in this many asks, and when jobs come or go, since encoding
it takes as long as a decision."""

FAILURES_UNTIL_PLAIN = 3
"""After this many failures in a row the policy is no longer asked, and ceilings are given back."""

_AS_PLAIN_DOCKER = PolicyTraits(heeds_progress=False, observes_only=True)
"""Of a policy that is no longer asked."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    name: str
    policy: Policy


CheckMemory = Callable[[object, int], None]
"""Raises PolicyError if a memory cannot be stored, or is too large for this number of jobs."""


def unchecked(memory: object, jobs: int) -> None:
    """Accepts any memory."""


class Decider:
    """One policy with its memory. `ask` may be called in every cycle and never raises."""

    def __init__(
        self,
        named: NamedPolicy,
        memory: PolicyMemory | None = None,
        check_memory: CheckMemory = unchecked,
    ) -> None:
        self.check_memory = check_memory
        self._named = named
        self._memory = memory
        self._ask_at_s = 0.0
        self._unmeasured = ASKS_PER_MEASURE
        """Asks since the last check of its memory's size."""
        self._failure: Failure | None = None
        self._why: Mapping[str, str] = {}
        self._weights: Mapping[str, float] = {}
        self._forecasts: Mapping[str, tuple[Forecast, ...]] = {}
        self.asks = 0
        self.failures = 0

    @property
    def name(self) -> str:
        return self._named.name

    def use(self, named: NamedPolicy) -> None:
        """Switch policies and reset failure counts. Memory stays if the name is the same."""
        if named.name != self.name:
            self._memory = None
            self._weights, self._forecasts = {}, {}
        self._named = named
        self._unmeasured = ASKS_PER_MEASURE
        self._ask_at_s, self._failure = 0.0, None

    def ask(self, snapshot: Snapshot) -> Answer:
        """The policy's answer, with a decision if the policy was due and did not fail."""
        if self._failure is not None:
            self._failure = replace(self._failure, error=None)
        decision = self._decision(snapshot)
        traits = self._named.policy.traits
        plain = self._failure is not None and self._failure.final
        return Answer(
            policy=self.name,
            decision=decision,
            why=self._why,
            weights=self._weights,
            forecasts=self._forecasts,
            traits=_AS_PLAIN_DOCKER if plain else traits,
            failure=self._failure,
        )

    def _decision(self, snapshot: Snapshot) -> Decision | None:
        if self._failure is not None and self._failure.final:
            names = [job.name for job in snapshot.running]
            self._why = dict.fromkeys(names, f"plain Docker: {self._failure.text}")
            self._weights, self._forecasts = {}, {}
            return Decision(dict.fromkeys(names, Limits()), self._why, self._memory)
        if snapshot.now_s < self._ask_at_s and not snapshot.wakes:
            return None
        self.asks += 1
        try:
            decision = self._decided(snapshot)
            refuse_nonsense(decision, {job.name for job in snapshot.jobs})
            self._measure(decision.memory, snapshot)
            why = dict(decision.why)
        except Exception as error:  # noqa: BLE001  a policy is arbitrary code: limits stay
            self._fail(error)
            return None
        self._failure = None
        self._memory, self._why = decision.memory, why
        self._weights, self._forecasts = decision.weights, decision.outlooks
        self._ask_at_s = snapshot.now_s + decision.next_s
        return decision

    def _decided(self, snapshot: Snapshot) -> Decision:
        """The policy divides the node among the jobs in the foreground. Background jobs use what
        these leave, without a ceiling: the planner gives them the least weight. A policy that only
        observes has them as all others."""
        policy = self._named.policy
        if policy.traits.observes_only:
            return policy.decide(snapshot, self._memory)
        decision = policy.decide(snapshot.foreground, self._memory)
        last = [job for job in snapshot.running if job.spec.background]
        if not last:
            return decision
        return replace(
            decision,
            limits={**decision.limits, **{job.name: Limits() for job in last}},
            why={**decision.why, **{job.name: _why_last(job.spec) for job in last}},
        )

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        in_a_row = 1 if self._failure is None else self._failure.in_a_row + 1
        text = f"policy {self.name} failed: {type(error).__name__}: {error}"
        self._failure = Failure(text, in_a_row, in_a_row >= FAILURES_UNTIL_PLAIN, error)
        self._forecasts = {}

    def _measure(self, memory: PolicyMemory | None, snapshot: Snapshot) -> None:
        self._unmeasured += 1
        if snapshot.wakes or self._unmeasured >= ASKS_PER_MEASURE:
            self.check_memory(memory, places(snapshot))
            self._unmeasured = 0


def _why_last(spec: JobSpec) -> str:
    """The reason of a background job's limits."""
    least = f"{render_cores(spec.kept_cores)} as promised, and " if spec.kept_cores else ""
    return f"background: {least}the CPU that no other job uses"


class ShadowDecider:
    """A policy asked beside the acting one, from the real state. Measurements and applied limits
    come from the acting policy; only `desired` is the shadow's own last decision. So it shows
    single decisions, not the history that they would cause."""

    def __init__(
        self,
        named: NamedPolicy,
        memory: PolicyMemory | None = None,
        check_memory: CheckMemory = unchecked,
    ) -> None:
        self.decider = Decider(named, memory, check_memory)
        self._desired: Mapping[str, Limits] = {}

    def use(self, named: NamedPolicy) -> None:
        if named.name != self.decider.name:
            self._desired = {}
        self.decider.use(named)

    def ask(self, state: State, options: GuardOptions) -> tuple[Shadow, Answer]:
        """Its hypothetical result in this cycle under the same guards, and its answer."""
        # A container that restarts has limits that no policy has decided.
        running = {job.name for job in state.snapshot.running}
        self._desired = {name: own for name, own in self._desired.items() if name in running}
        jobs = tuple(
            replace(job, desired=self._desired.get(job.name, job.desired))
            for job in state.snapshot.jobs
        )
        state = replace(state, snapshot=replace(state.snapshot, jobs=jobs))
        answer = self.decider.ask(state.snapshot)
        approved = guard_limits(state, answer, options)
        if answer.decision is not None:
            self._desired = approved.limits
        failure = answer.failure
        problem = None if failure is None else failure.text
        if failure is not None and failure.final:
            problem = f"{failure.text}; it is not asked any more"
        return (
            Shadow(
                policy=answer.policy,
                decision=answer.decision,
                limits=approved.limits,
                why=answer.why,
                guarded=approved.notes,
                trouble=problem,
            ),
            answer,
        )

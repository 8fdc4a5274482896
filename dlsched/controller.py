"""One cycle: observe, fold, decide, act, report.

Owns the order of things, and what happens when a policy fails. It must not know Docker, files or
the clock: it is handed its adapters, and the time comes with the observation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dlsched.clock import Clock
from dlsched.errors import PolicyError
from dlsched.guards import Guarded, GuardOptions, guard, refuse_nonsense
from dlsched.journal import memory_size_check
from dlsched.ledger import Folded, Ledger, Wish
from dlsched.model import (
    Action,
    CycleReport,
    Decision,
    Ended,
    Limits,
    Memory,
    Outcome,
    RejectedFile,
    Remove,
    Snapshot,
)
from dlsched.planner import ceilings_in_force, may_grow, plan
from dlsched.policies import Policy
from dlsched.runtime.base import Runtime

log = logging.getLogger(__name__)

FAILURES_UNTIL_PLAIN = 3
"""After so many failures in a row the policy is no longer asked, and ceilings are given back."""


@dataclass(frozen=True, slots=True)
class Inbound:
    """What the job files say now."""

    wish: Wish = field(default_factory=Wish)
    sources: Mapping[str, str] = field(default_factory=dict)
    rejected: tuple[RejectedFile, ...] = ()
    trouble: str | None = None


class WishSource(Protocol):
    """Where wishes come from: the watch folder, or a trace."""

    def scan(self, now_s: float) -> Inbound:
        """The wish in force now."""
        ...


class EndedRecords(Protocol):
    """The durable records of ended jobs."""

    def all(self) -> Mapping[str, Ended]:
        """Every record, by job."""
        ...

    def record(self, ended: Ended) -> None:
        """Keep it, durably."""
        ...

    def lift(self, name: str) -> None:
        """Forget it."""
        ...


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy under the name that the operator knows it by."""

    name: str
    policy: Policy


class Controller:
    """Runs cycles. Only the loop's thread calls it; other threads read `last_report`."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        clock: Clock,
        inbox: WishSource,
        records: EndedRecords,
        ledger: Ledger,
        policy: NamedPolicy,
        guards: GuardOptions,
        memory: Memory | None = None,
        dry_run: bool = False,
        publish: Callable[[CycleReport], None] = lambda _: None,
        troubles: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`publish` is told every report; `troubles` tells what else is wrong, for its alarms."""
        self._runtime = runtime
        self._clock = clock
        self._inbox = inbox
        self._records = records
        self._ledger = ledger
        self._named = policy
        self._guards = guards
        self._memory = memory
        self._dry_run = dry_run
        self._publish = publish
        self._troubles = troubles
        self._ask_at_s = 0.0
        self._why: dict[str, str] = {}
        self._failures = 0
        self._failure = ""
        self._undurable: str | None = None
        self.last_report: CycleReport | None = None

    def run_once(self) -> CycleReport:
        """One cycle, from facts to what was done about them."""
        phases = _Phases(self._clock)
        now_s = self._clock.now_s()
        inbound = self._inbox.scan(now_s)
        phases.mark("inbox")
        seen = self._runtime.observe(now_s)
        phases.mark("observe")
        folded = self._ledger.fold(seen, inbound.wish, self._records.all())
        phases.mark("fold")
        decision = self._decide(folded.snapshot)
        phases.mark("decide")
        guarded = self._guard(folded, decision)
        actions = plan(
            folded.snapshot,
            guarded.limits,
            self._why,
            folded.starts,
            folded.removals,
            reserves=self._reserves,
            sources=inbound.sources,
        )
        phases.mark("plan")
        outcomes = self._act(folded.snapshot, actions, told=decision is not None)
        self._keep_records(folded)
        self._ledger.applied(outcomes, self._clock.now_s())
        phases.mark("act")
        report = CycleReport(
            snapshot=folded.snapshot,
            policy=self._named.name,
            decision=decision,
            limits=guarded.limits,
            guarded=guarded.notes,
            outcomes=outcomes,
            rejected=inbound.rejected,
            alarms=self._alarms(folded, inbound, seen.engine_trouble),
            engine_ok=seen.engine_ok,
            wall_time=self._clock.wall_time(),
            phase_s=phases.seconds,
        )
        _log_alarms(self.last_report.alarms if self.last_report else (), report.alarms)
        self.last_report = report
        self._publish(report)
        return report

    def use(self, policy: NamedPolicy, guards: GuardOptions) -> None:
        """Another policy or other guards from the next cycle on; past failures are forgiven."""
        if policy.name != self._named.name:
            self._memory = None
        self._named, self._guards = policy, guards
        self._failures, self._ask_at_s = 0, 0.0

    # ------------------------------------------------------------------ decide

    @property
    def _reserves(self) -> bool:
        return self._named.policy.reserves and not self._plain

    @property
    def _plain(self) -> bool:
        return self._failures >= FAILURES_UNTIL_PLAIN

    def _decide(self, snapshot: Snapshot) -> Decision | None:
        """Ask the policy when it is time; None when it is not, or when it failed."""
        if self._plain:
            return Decision(
                limits={job.name: Limits() for job in snapshot.running},
                why={job.name: f"plain Docker: {self._failure}" for job in snapshot.running},
                memory=self._memory,
            )
        if snapshot.now_s < self._ask_at_s and not snapshot.wakes:
            return None
        try:
            decision = self._named.policy.decide(snapshot, self._memory)
            refuse_nonsense(decision, {job.name for job in snapshot.jobs})
            memory_size_check(decision.memory, len(snapshot.jobs))
            why = dict(decision.why)
        except Exception as error:  # a policy is anybody's code: whatever it does, limits stay
            self._failures += 1
            self._failure = f"policy {self._named.name} failed: {type(error).__name__}: {error}"
            level = logging.ERROR if isinstance(error, PolicyError) else logging.CRITICAL
            log.log(level, "%s (%d in a row)", self._failure, self._failures, exc_info=error)
            return None
        self._failures = 0
        self._memory = decision.memory
        self._ask_at_s = snapshot.now_s + decision.next_s
        self._why = why
        return decision

    def _guard(self, folded: Folded, decision: Decision | None) -> Guarded:
        """Guards hold in every cycle, also when the policy was not asked."""
        guarded = guard(
            folded.snapshot,
            decision or Decision(),
            self._guards,
            reserves=self._reserves,
            starts=folded.starts,
        )
        if decision is not None:
            self._ledger.decided(guarded.limits)
            if self._plain:
                self._why = dict(decision.why)
        return guarded

    # ------------------------------------------------------------------ act

    def _act(
        self, snapshot: Snapshot, actions: Sequence[Action], told: bool
    ) -> tuple[Outcome, ...]:
        """Apply in order; growth that does not fit beside what is truly in force is withheld.

        A dry run tells its actions when the policy was asked (`told`), not again in every cycle.
        """
        if self._dry_run and not told:
            return ()
        if self._dry_run:
            return tuple(Outcome(action, "withheld", "dry run") for action in actions)
        capacity = snapshot.node.capacity_cores
        in_force = ceilings_in_force(snapshot)
        outcomes: list[Outcome] = []
        for action in actions:
            if self._reserves and not isinstance(action, Remove):
                fits, total = may_grow(action, in_force, capacity)
                shrinks = action.limits.cpu_cores is not None and (
                    action.limits.cpu_cores <= in_force.get(action.job, 0.0)
                )
                if not fits and not shrinks:
                    detail = f"ceilings would sum to {total:.2f} of {capacity:.2f} cores"
                    outcomes.append(Outcome(action, "withheld", detail))
                    continue
            outcome = self._runtime.apply(action, snapshot.now_s)
            outcomes.append(outcome)
            if outcome.status in ("done", "begun") and not isinstance(action, Remove):
                cores = action.limits.cpu_cores
                wanted = capacity if cores is None else cores
                done = outcome.status == "done"
                in_force[action.job] = (
                    wanted if done else max(wanted, in_force.get(action.job, 0.0))
                )
            _log_outcome(outcome)
        return tuple(outcomes)

    def _keep_records(self, folded: Folded) -> None:
        if self._dry_run:
            return
        try:
            for name in folded.lifts:
                self._records.lift(name)
            for ended in folded.ended:
                self._records.record(replace(ended, wall_time=self._clock.wall_time()))
                log.info("job %s ended: %s: %s", ended.name, ended.kind, ended.detail)
            if folded.lifts or folded.ended:
                self._undurable = None
        except OSError as error:  # a full disk: the word holds until the agent ends
            self._undurable = f"the end of a job cannot be recorded: {error}"

    def _alarms(self, folded: Folded, inbound: Inbound, engine: str | None) -> tuple[str, ...]:
        alarms = [*folded.alarms, *self._troubles()]
        if engine is not None:
            alarms.append(f"engine: {engine}")
        if inbound.trouble is not None:
            alarms.append(inbound.trouble)
        if self._undurable is not None:
            alarms.append(self._undurable)
        if self._plain:
            alarms.append(f"plain Docker until SIGHUP: {self._failure}")
        elif self._failures:
            alarms.append(f"limits stay as they are: {self._failure}")
        return tuple(alarms)


class _Phases:
    """CPU time of the loop's thread by phase."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = clock.cpu_s()
        self.seconds: dict[str, float] = {}

    def mark(self, phase: str) -> None:
        """What passed since the mark before belongs to `phase`."""
        now_s = self._clock.cpu_s()
        self.seconds[phase] = now_s - self._last_s
        self._last_s = now_s


def _log_alarms(before: Sequence[str], now: Sequence[str]) -> None:
    """Tell what began and what ended, once each."""
    for alarm in now:
        if alarm not in before:
            log.warning("%s", alarm)
    for alarm in before:
        if alarm not in now:
            log.info("over: %s", alarm)


def _log_outcome(outcome: Outcome) -> None:
    action = outcome.action
    kind = type(action).__name__.lower()
    level = logging.WARNING if outcome.status == "failed" else logging.INFO
    if kind == "resize" and outcome.status == "done":
        level = logging.DEBUG
    log.log(level, "%s %s: %s %s", kind, action.job, outcome.status, outcome.detail)

"""One cycle: observe, fold, decide, act, report.

Owns the order of things. It must not know Docker, files or the clock: it is handed its adapters,
and the time comes with the observation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dlsched.control.ceilings import CeilingBudget
from dlsched.control.decider import CheckMemory, Decider, NamedPolicy, ShadowDecider, unchecked
from dlsched.control.gpus.moves import Moving, moving
from dlsched.control.guards import Guarded, GuardOptions, guard
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.update import Folded
from dlsched.control.planner import ceilings_in_force, plan
from dlsched.control.ports import Clock, EndedRecords, Inbound, Runtime, WishSource
from dlsched.model.actions import Action, Outcome, Resize
from dlsched.model.cycle import CycleReport, HookRun, Shadow
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.errors import PolicyError
from dlsched.model.forecast import Standings, in_full, turned
from dlsched.model.state import Snapshot

log = logging.getLogger(__name__)


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
        memory: PolicyMemory | None = None,
        check_memory: CheckMemory = unchecked,
        shadow: ShadowDecider | None = None,
        dry_run: bool = False,
        publish: Callable[[CycleReport], None] = lambda _: None,
        troubles: Callable[[], Sequence[str]] = tuple,
        deliver: Callable[[Folded, str], tuple[HookRun, ...]] = lambda *_: (),
    ) -> None:
        """`publish` is told every report; `troubles` tells what else is wrong, for its alarms.

        `deliver` keeps and tells what a fold says of deliveries, with the wall time; never raises.
        """
        self._runtime = runtime
        self._clock = clock
        self._inbox = inbox
        self._records = records
        self._ledger = ledger
        self._decider = Decider(policy, memory, check_memory)
        self._check_memory = check_memory
        self._shadow = shadow
        self._guards = guards
        self._dry_run = dry_run
        self._publish = publish
        self._troubles = troubles
        self._deliver = deliver
        self._undurable: str | None = None
        self._failing: dict[tuple[str, str], str] = {}
        """By kind of action and job, what was last told of its failing."""
        self._held: str | None = None
        self._standings: dict[str, Standings] = {}
        """By job, how its targets stand, as far as the log told."""
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
        decision = self._decider.decide(folded.snapshot)
        _log_failure(self._decider)
        phases.mark("decide")
        guarded = self._guard(folded, decision)
        moves = self._moving(folded, decision)
        guarded = replace(guarded, notes={**moves.notes, **guarded.notes})
        actions = plan(
            folded.snapshot,
            guarded.limits,
            self._decider.why,
            folded.starts,
            folded.removals,
            reserves=self._decider.reserves,
            sources=inbound.sources,
            placements=folded.placements,
            moves=moves.moves,
            ceilings_of=self._guards.ceilings_of,
            burst_ratio=self._guards.burst_ratio,
            weights=self._decider.weights,
        )
        phases.mark("plan")
        outcomes = self._act(folded.snapshot, actions, told=decision is not None)
        hooks = self._keep_records(folded)
        self._ledger.applied(outcomes, self._clock.now_s())
        phases.mark("act")
        # After everything is done: no limit of this cycle waits for it.
        shadow = self._look_on(folded)
        phases.mark("shadow")
        report = CycleReport(
            snapshot=folded.snapshot,
            policy=self._decider.name,
            decision=decision,
            limits=guarded.limits,
            guarded=guarded.notes,
            outcomes=outcomes,
            rejected=inbound.rejected,
            alarms=self._alarms(folded, inbound, seen.engine_trouble, shadow),
            engine_ok=seen.engine_ok,
            wall_time=self._clock.wall_time(),
            phase_s=phases.seconds,
            shadow=shadow,
            hooks=hooks,
            outlooks=self._decider.outlooks,
        )
        self._ledger.outlooks = report.outlooks
        _log_alarms(self.last_report.alarms if self.last_report else (), report.alarms)
        self._standings = _log_turns(report, self._standings)
        self.last_report = report
        self._publish(report)
        return report

    def hold(self, why: str | None) -> None:
        """Do nothing of what is decided, and tell why; None: do it."""
        self._held = why

    def use(
        self, policy: NamedPolicy, guards: GuardOptions, shadow: NamedPolicy | None = None
    ) -> None:
        """Other policies or guards from the next cycle on; past failures are forgiven."""
        self._decider.use(policy)
        self._guards = guards
        if shadow is None:
            self._shadow = None
        elif self._shadow is None:
            self._shadow = ShadowDecider(shadow, check_memory=self._check_memory)
        else:
            self._shadow.use(shadow)

    def _guard(self, folded: Folded, decision: Decision | None) -> Guarded:
        """Guards hold in every cycle, also when the policy was not asked."""
        guarded = guard(
            folded.snapshot,
            decision or Decision(),
            self._guards,
            reserves=self._decider.reserves,
            heeds_progress=self._decider.heeds_progress,
            starts=folded.starts,
            placements=folded.placements,
        )
        if decision is not None:
            self._ledger.decided(guarded.limits)
        return guarded

    def _moving(self, folded: Folded, decision: Decision | None) -> Moving:
        return moving(
            folded.snapshot,
            folded.moves,
            decision or Decision(),
            self._guards.gpus,
            folded.starts,
            folded.placements,
        )

    def _look_on(self, folded: Folded) -> Shadow | None:
        """What the shadow would have done; it is handed nothing that could do it."""
        if self._shadow is None:
            return None
        seen = self._shadow.look(folded.snapshot, self._guards, folded.starts, folded.placements)
        _log_failure(self._shadow.decider)
        return seen

    def _act(
        self, snapshot: Snapshot, actions: Sequence[Action], told: bool
    ) -> tuple[Outcome, ...]:
        """Apply in order; growth that does not fit beside what is truly in force is withheld.

        What is only told (a dry run, or while it is held) is told when the policy was asked
        (`told`), not again in every cycle.
        """
        why = "dry run" if self._dry_run else self._held
        if why is not None:
            return tuple(Outcome(action, "withheld", why) for action in actions if told)
        in_force = CeilingBudget(
            ceilings_in_force(snapshot),
            snapshot.node.capacity_cores,
            reserves=self._decider.reserves,
        )
        names = {job.name for job in snapshot.jobs}
        self._failing = {key: told for key, told in self._failing.items() if key[1] in names}
        outcomes: list[Outcome] = []
        while len(outcomes) < len(actions):
            rest = actions[len(outcomes) :]
            together = in_force.next_batch(rest)
            if not together:
                outcomes.append(Outcome(rest[0], "withheld", in_force.why_not(rest[0]) or ""))
            for outcome in self._apply(together, snapshot.now_s):
                outcomes.append(outcome)
                in_force.take(outcome)
                self._tell(outcome)
        return tuple(outcomes)

    def _apply(self, actions: Sequence[Action], now_s: float) -> tuple[Outcome, ...]:
        """Several changes at once, or one action."""
        changes = [action for action in actions if isinstance(action, Resize)]
        if len(changes) > 1:
            return self._runtime.apply_all(changes, now_s)
        return tuple(self._runtime.apply(action, now_s) for action in actions)

    def _tell(self, outcome: Outcome) -> None:
        """In the log; what fails in the same way again and again is told once."""
        action = outcome.action
        kind = type(action).__name__.lower()
        known = self._failing.pop((kind, action.job), None)
        level = logging.INFO
        if outcome.status == "failed":
            level = logging.DEBUG if known == outcome.detail else logging.WARNING
            self._failing[kind, action.job] = outcome.detail
        elif kind == "resize" and outcome.status == "done":
            level = logging.DEBUG
        log.log(level, "%s %s: %s %s", kind, action.job, outcome.status, outcome.detail)

    def _keep_records(self, folded: Folded) -> tuple[HookRun, ...]:
        """Ends and deliveries made durable; returns what became of the operator's commands."""
        if self._dry_run:
            return ()
        try:
            for name in folded.lifts:
                self._records.lift(name)
            for ended in folded.ended:
                log.info("job %s ended: %s: %s", ended.name, ended.kind, ended.detail)
                self._records.record(replace(ended, wall_time=self._clock.wall_time()))
            self._records.write_again()
            self._undurable = None
        except OSError as error:  # a full disk: the word holds, and is written in a later cycle
            self._undurable = f"the end of a job cannot be recorded: {error}"
        return self._deliver(folded, self._clock.wall_time())

    def _alarms(
        self, folded: Folded, inbound: Inbound, engine: str | None, shadow: Shadow | None
    ) -> tuple[str, ...]:
        alarms = [*folded.alarms, *self._troubles()]
        if engine is not None:
            alarms.append(f"engine: {engine}")
        alarms += inbound.troubles
        if self._undurable is not None:
            alarms.append(self._undurable)
        if self._decider.plain:
            alarms.append(f"plain Docker until SIGHUP: {self._decider.failure}")
        elif self._decider.failure is not None:
            alarms.append(f"limits stay as they are: {self._decider.failure}")
        if shadow is not None and shadow.trouble is not None:
            alarms.append(f"shadow: {shadow.trouble}")
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


def _log_failure(decider: Decider) -> None:
    if decider.error is not None:
        level = logging.ERROR if isinstance(decider.error, PolicyError) else logging.CRITICAL
        count = decider.failed_in_a_row
        log.log(level, "%s (%d in a row)", decider.failure, count, exc_info=decider.error)


def _log_alarms(before: Sequence[str], now: Sequence[str]) -> None:
    """Tell what began and what ended, once each."""
    for alarm in now:
        if alarm not in before:
            log.warning("%s", alarm)
    for alarm in before:
        if alarm not in now:
            log.info("over: %s", alarm)


def _log_turns(report: CycleReport, before: Mapping[str, Standings]) -> dict[str, Standings]:
    """Tell which targets went out of reach or came back, once each; returns how all stand."""
    after: dict[str, Standings] = {}
    for name, outlooks in report.outlooks.items():
        after[name], turns = turned(outlooks, before.get(name, ()), report.snapshot.now_s)
        for word, outlook in turns:
            level = logging.INFO if word == "possible" else logging.WARNING
            words = in_full(outlook, report.snapshot.now_s)
            log.log(level, "%s: its target (%s) is %s: %s", name, outlook.tier, word, words)
    return after

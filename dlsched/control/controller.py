"""The control cycle: scan, observe, update, decide, guard, plan, execute, keep, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ParamSpec, TypeVar

from dlsched.control.ceilings import CeilingBudget, applied_ceilings
from dlsched.control.cycle_log import CycleLog
from dlsched.control.decider import Decider, NamedPolicy, ShadowDecider
from dlsched.control.guards import Approved, GuardOptions, guard
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.updated import State
from dlsched.control.memory_limits import MemoryLimits
from dlsched.control.planner import plan
from dlsched.control.ports import Clock, Ports, Runtime
from dlsched.model.actions import Action, Memory, Outcome, Resize
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import CycleReport, HookRun, Shadow
from dlsched.model.decision import Answer

P = ParamSpec("P")
T = TypeVar("T")


class Controller:
    """Runs cycles, in the loop's thread only. Other threads may read `last_report`."""

    def __init__(
        self,
        ports: Ports,
        ledger: Ledger,
        decider: Decider,
        options: GuardOptions,
        shadow: ShadowDecider | None = None,
    ) -> None:
        self._runtime, self._clock, self._records = ports.runtime, ports.clock, ports.records
        self._ports = ports
        self._ledger = ledger
        self._decider = decider
        self._options = options
        self._shadow = shadow
        self._log = CycleLog()
        self._memory_limits = MemoryLimits()
        self._phases = _Phases(ports.clock)
        self.last_report: CycleReport | None = None

        timed = self._phases.timed
        self._scan = timed("inbox", ports.inbox.scan)
        self._observe = timed("observe", ports.runtime.observe)
        self._update = timed("fold", ledger.update)
        self._ask = timed("decide", decider.ask)
        self._decide_memory = timed("memory", self._memory_limits.decide)
        self._plan = timed("plan", plan)
        self._advance = timed("act", ports.runtime.advance)
        self._ask_shadow = timed("shadow", self._shadowed)

    def run_once(self) -> CycleReport:
        self._phases.begin()
        now_s = self._clock.now_s()
        desired = self._scan(now_s)
        self._runtime.resume(now_s)
        facts = self._observe(now_s)
        state = self._update(facts, desired, self._records.ended())
        answer = self._ask(state.snapshot)
        approved = self._approve(state, answer)
        memory = self._decide_memory(state, answer, self._options)
        actions = (*memory, *self._plan(state, answer, approved, self._options))
        outcomes = self._execute(actions, state, answer)
        hooks = self._records.keep(state)
        self._ledger.applied(outcomes, answer, self._clock.now_s())
        self._memory_limits.applied(outcomes, state)
        self._advance(now_s)
        shadow = self._ask_shadow(state)  # last, so that it delays no limit of this cycle
        return self._publish(state, answer, approved, outcomes, hooks, shadow)

    def failed(self, alarm: Alarm) -> CycleReport | None:
        """Show the alarm of a cycle that raised, in the report of the last one that did not, which
        is returned; None: there is none yet."""
        if self.last_report is None:
            return None
        others = (one for one in self.last_report.raised if one.source != alarm.source)
        raised = (*others, alarm)
        texts = tuple(one.text for one in raised)
        self.last_report = replace(self.last_report, raised=raised, alarms=texts)
        return self.last_report

    def use(
        self, policy: NamedPolicy, options: GuardOptions, shadow: NamedPolicy | None = None
    ) -> None:
        """Switch policies or guard options from the next cycle on; failure counts are reset."""
        self._decider.use(policy)
        self._options = options
        if shadow is None:
            self._shadow = None
        elif self._shadow is None:
            self._shadow = ShadowDecider(shadow, check_memory=self._decider.check_memory)
        else:
            self._shadow.use(shadow)

    def _approve(self, state: State, answer: Answer) -> Approved:
        """Apply the guards. They run in every cycle, also when the policy was not asked."""
        approved = guard(state, answer, self._options)
        if answer.decision is not None:
            self._ledger.decided(approved.limits)
        return approved

    def _execute(
        self, actions: Sequence[Action], state: State, answer: Answer
    ) -> tuple[Outcome, ...]:
        self._log.answer(answer)
        self._ports.before_actions(state, actions)
        outcomes = execute(actions, state, answer, self._runtime)
        if self._runtime.held is None:
            self._log.outcomes(outcomes, state.snapshot)
        return outcomes

    def _shadowed(self, state: State) -> Shadow | None:
        """The shadow's hypothetical result. It gets no port that it could act with."""
        if self._shadow is None:
            return None
        shadow, answer = self._shadow.ask(state, self._options)
        self._log.answer(answer)
        return shadow

    def _publish(
        self,
        state: State,
        answer: Answer,
        approved: Approved,
        outcomes: tuple[Outcome, ...],
        hooks: tuple[HookRun, ...],
        shadow: Shadow | None,
    ) -> CycleReport:
        alarms = self._alarms(state, answer, shadow)
        report = CycleReport(
            snapshot=state.snapshot,
            policy=answer.policy,
            decision=answer.decision,
            limits=approved.limits,
            guarded=approved.notes,
            outcomes=outcomes,
            rejected=state.desired.rejected,
            alarms=tuple(alarm.text for alarm in alarms),
            raised=alarms,
            engine_ok=state.engine_ok,
            wall_time=self._clock.wall_time(),
            phase_s=self._phases.seconds,
            shadow=shadow,
            hooks=hooks,
            outlooks=answer.forecasts,
        )
        self._log.report(report)
        self.last_report = report
        self._ports.publish(report)
        return report

    def _alarms(self, state: State, answer: Answer, shadow: Shadow | None) -> tuple[Alarm, ...]:
        # Where its limit is raised in time, or an alarm says why not, that it fills is no news.
        raised = self._memory_limits.managed if self._runtime.held is None else frozenset[str]()
        alarms = [
            *(
                one
                for one in state.alarms
                if one.key is not AlarmKey.MEMORY_FILLS or one.source not in raised
            ),
            *self._memory_limits.alarms,
            *self._ports.alarms(),
        ]
        if answer.failure is not None and answer.failure.final:
            text = f"all limits are given back until a reload (SIGHUP): {answer.failure.text}"
            alarms.append(Alarm("policy", AlarmKey.PLAIN_DOCKER, text))
        elif answer.failure is not None:
            text = f"limits stay as they are: {answer.failure.text}"
            alarms.append(Alarm("policy", AlarmKey.POLICY_FAILED, text))
        if shadow is not None and shadow.trouble is not None:
            alarms.append(Alarm("shadow", AlarmKey.SHADOW_FAILED, f"shadow: {shadow.trouble}"))
        return tuple(alarms)


class _Phases:
    """CPU time of the loop's thread in one cycle, by phase."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = 0.0
        self.seconds: dict[str, float] = {}

    def begin(self) -> None:
        self.seconds, self._last_s = {}, self._clock.cpu_s()

    def timed(self, phase: str, call: Callable[P, T]) -> Callable[P, T]:
        """The same call; CPU time since the last measured call ended counts as `phase`."""

        def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            result = call(*args, **kwargs)
            now_s = self._clock.cpu_s()
            self.seconds[phase] = now_s - self._last_s
            self._last_s = now_s
            return result

        return measured


def execute(
    actions: Sequence[Action], state: State, answer: Answer, runtime: Runtime
) -> tuple[Outcome, ...]:
    """One outcome for each action. Growth that does not fit beside applied ceilings is withheld.
    While the runtime is held, all are withheld, and reported only in cycles with a decision."""
    if (why := runtime.held) is not None:
        reported = actions if answer.decision is not None else ()
        return tuple(Outcome(action, "withheld", why) for action in reported)
    snapshot, first = state.snapshot, state.snapshot.foreground
    ceilings = CeilingBudget(
        applied_ceilings(first),
        first.node.capacity_cores,
        reserves=answer.traits.reserves,
        unbounded=frozenset(job.name for job in snapshot.jobs if job.spec.background),
    )
    outcomes: list[Outcome] = []
    while len(outcomes) < len(actions):
        rest = actions[len(outcomes) :]
        batch = ceilings.next_batch(rest)
        if not batch:
            outcomes.append(Outcome(rest[0], "withheld", ceilings.why_not(rest[0]) or ""))
        for outcome in _apply(batch, runtime, snapshot.now_s):
            outcomes.append(outcome)
            ceilings.take(outcome)
    return tuple(outcomes)


def _apply(batch: Sequence[Action], runtime: Runtime, now_s: float) -> tuple[Outcome, ...]:
    changes = [action for action in batch if isinstance(action, Resize | Memory)]
    if len(changes) > 1:
        return runtime.apply_all(changes, now_s)
    return tuple(runtime.apply(action, now_s) for action in batch)

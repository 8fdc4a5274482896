"""The state of all jobs: takes in facts, returns one snapshot and what it calls for.

Holds the core's only mutable state, a cache: after a restart it is rebuilt from the engine's
listing, the job files and the records of ended jobs. It decides no limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dlsched.control.admission import admit
from dlsched.control.gpus.holders import idle_alarms
from dlsched.control.gpus.pending import Assignments, Member
from dlsched.control.gpus.rebalance import Wanted
from dlsched.control.ledger.blindness import NEITHER, Condition, condition
from dlsched.control.ledger.bottleneck import Bottlenecks, bottleneck_alarms
from dlsched.control.ledger.cpu import capacity_alarms, divide_cpu
from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.job_record import (
    JobRecord,
    changes_of,
    ending,
    is_lifted,
    removal,
    unknown_spec,
    view_of,
)
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.lifecycle import Lifecycle, adopted_status, status_of, untouched_status
from dlsched.control.ledger.memory import MemoryAlarms, promised_bytes
from dlsched.control.ledger.ownership import Roster, divergence_alarms, engine_alarms, roster
from dlsched.control.ledger.threads import spinning_alarms
from dlsched.control.ledger.tiers import TierTracker
from dlsched.control.ledger.updated import Queued, State
from dlsched.estimate.finish import finish_forecast, unknown
from dlsched.estimate.gpu_use import gpu_uses
from dlsched.model.actions import Outcome, Remove, Resize, Start
from dlsched.model.decision import Answer
from dlsched.model.facts import ContainerFact, NodeFact, Observation
from dlsched.model.forecast import Forecast
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Limits
from dlsched.model.state import Delivered, Ended, JobState, JobView, NodeView, Progress, Snapshot
from dlsched.model.units import render_cores

_RETRY_FIRST_S = 5.0
_RETRY_MOST_S = 300.0


class Ledger:
    """All jobs' records. Only the loop's thread uses it."""

    def __init__(
        self,
        options: LedgerOptions,
        cycle: int = 0,
        delivered: Mapping[str, Delivered] | None = None,
    ) -> None:
        """`delivered`: durable records of an earlier agent, by job."""
        self._options = options
        self._tiers = TierTracker(delivered or {})
        self._assignments = Assignments()
        self._records: dict[str, JobRecord] = {}
        self._cycle, self._arrived = cycle, 0
        self._wakes: list[str] = []
        self._capacity_cores: float | None = None
        self._memory_alarms = MemoryAlarms()
        self._bottlenecks = Bottlenecks()
        self._host: tuple[float, float] | None = None
        self._forecasts: Mapping[str, tuple[Forecast, ...]] = {}  # the last answer's, for the queue

    def update(self, observed: Observation, desired: Desired, ended: Mapping[str, Ended]) -> State:
        """Take in one observation, the desired state and the records of ended jobs."""
        self._cycle += 1
        known = {name: record.measures.container_id for name, record in self._records.items()}
        jobs = roster(observed, desired, known)
        self._take_in(jobs)
        node = self._node(jobs, self._measure(jobs))
        statuses = self._statuses(jobs, ended)
        members = self._members(jobs, statuses)
        queued = self._starts(jobs, statuses, node, members)
        views = tuple(self._view(jobs, name, statuses[name]) for name in sorted(statuses))
        views = self._bottlenecks.named(
            views, jobs.facts, node, observed.now_s, self._options.window_s
        )
        return State(
            snapshot=Snapshot(
                cycle=self._cycle,
                now_s=observed.now_s,
                node=node,
                jobs=views,
                window_s=self._options.window_s,
                wakes=tuple(self._wakes),
            ),
            desired=desired,
            engine_ok=observed.engine_ok,
            starts=queued.starts,
            placements=queued.placements,
            move=self._move(observed, node, members, queued),
            removals=self._removals(jobs, statuses),
            ended=self._endings(jobs, statuses),
            lifts=tuple(
                name
                for name, end in ended.items()
                if is_lifted(jobs.desired, statuses.get(name), end)
            ),
            delivered=self._tiers.deliveries(),
            undelivered=self._tiers.voided(
                jobs.specs, {*self._records, *desired.claimed}, settled=desired.settled
            ),
            alarms=(
                *jobs.alarms,
                *self._assignments.alarms(node, members, self._options.gpus),
                *idle_alarms(node.gpus),
                *engine_alarms(observed),
                *capacity_alarms(observed.node),
                *divergence_alarms(views),
                *bottleneck_alarms(views),
                *self._memory_alarms.of(views, observed),
                *spinning_alarms(views),
                *desired.alarms,
            ),
        )

    @property
    def missed(self) -> Collection[str]:
        """Jobs that miss their target, or hardly compute: what they wait for is to be sampled."""
        return self._bottlenecks.missed

    def adopt(self, options: LedgerOptions) -> None:
        """Use new options from the next update on."""
        self._options = options
        self._capacity_cores = None
        for record in self._records.values():
            record.view = None

    def decided(self, limits: Mapping[str, Limits]) -> None:
        """Record a decision: the pending wakes are handled, and the approved limits are desired."""
        self._wakes.clear()
        for name, wanted in limits.items():
            if name in self._records:
                self._records[name].desired = wanted

    def applied(self, outcomes: Sequence[Outcome], answer: Answer, now_s: float) -> None:
        """Record the outcomes of an answer. A changed limit starts a new measuring window."""
        self._forecasts = answer.forecasts
        for outcome in outcomes:
            self._assignments.applied(outcome, now_s)
            if (record := self._records.get(outcome.action.job)) is None:
                continue
            if isinstance(outcome.action, Start):
                record.refusal = None if outcome.ok else outcome.detail
                record.forgiven = None
            if outcome.ok and isinstance(outcome.action, Resize | Start):
                changed = record.measures.limited(outcome.action.limits, now_s)
                if changed and isinstance(outcome.action, Start):
                    record.desired = outcome.action.limits

    def _take_in(self, jobs: Roster) -> None:
        """Create records for new names, and update changed specs."""
        for name in sorted({*jobs.specs, *jobs.facts}):
            spec, record = jobs.specs.get(name), self._records.get(name)
            if record is None:
                self._arrived += 1
                known = spec or unknown_spec(jobs.facts[name])
                self._records[name] = JobRecord(
                    spec=known,
                    order=self._arrived,
                    arrived_s=jobs.observed.now_s,
                    forgiven=jobs.begun.get(name),
                )
            elif spec is not None and spec is not record.spec and spec != record.spec:
                if record.state is JobState.RUNNING:
                    self._wakes += changes_of(name, record.spec, spec)
                record.spec = spec
                record.retry_at_s = record.retry_s = 0.0

    def _measure(self, jobs: Roster) -> float:
        """Measure usage and progress; returns core-seconds used by jobs since the last update."""
        observed, facts, total = jobs.observed, jobs.facts, 0.0
        uses = gpu_uses(observed.node.gpus, facts.values()) if observed.node else {}
        for name, record in self._records.items():
            fact = facts.get(name)
            record.memory.update(fact, observed.now_s)
            record.threads.update(fact, observed)
            self._tiers.observe(record.spec, fact, self._options.tier_evaluations, observed.now_s)
            if fact is None:
                record.measures.absent()
                continue
            if record.measures.is_new(fact):
                record.retry_at_s = record.retry_s = 0.0
                if record.state is None:  # a restarted agent keeps what applies until it decides
                    record.desired = fact.actual
            target = record.spec.target
            record.measures.set_metric(
                target.metric if isinstance(target, AccuracyTarget) else None
            )
            total += record.measures.update(
                fact, observed.now_s, self._options.window_s, uses.get(fact.container_id)
            )
        return total

    def _node(self, jobs: Roster, used_core_s: float) -> NodeView:
        observed, foreign = jobs.observed, None
        node = observed.node or NodeFact(cores=1.0, memory_bytes=0)
        if observed.host_busy_core_s is not None:
            if self._host is not None and observed.now_s > self._host[0]:
                busy = observed.host_busy_core_s - self._host[1] - used_core_s
                foreign = max(0.0, busy / (observed.now_s - self._host[0]))
            self._host = (observed.now_s, observed.host_busy_core_s)
        options = self._options
        cpu = divide_cpu(node.cores, options.capacity_cores, options.reserve_cores, node.jobs_cores)
        if observed.node is not None:
            before, self._capacity_cores = self._capacity_cores, cpu.ceiling_cores
            if before is not None and before != cpu.ceiling_cores:
                change = f"{render_cores(before)} -> {render_cores(cpu.ceiling_cores)}"
                self._wakes.append(f"capacity: {change}")
        return NodeView(
            capacity_cores=cpu.ceiling_cores,
            cores=node.cores,
            memory_bytes=max(0, node.memory_bytes - options.reserve_memory_bytes),
            grain_cores=node.grain_cores,
            foreign_cores=foreign,
            gpus=self._assignments.views(
                observed, jobs.facts, jobs.specs, options.gpus, options.gpu_idle_after_s
            ),
            gpu_trouble=node.gpu_trouble,
            bound_by=node.bound_by,
            throttled_ratio=node.throttled_ratio,
            host_cpu=node.host_cpu,
            memory_spare_bytes=(
                None
                if node.memory_available_bytes is None
                else node.memory_available_bytes - options.reserve_memory_bytes
            ),
        )

    def _statuses(self, jobs: Roster, ended: Mapping[str, Ended]) -> dict[str, Lifecycle]:
        """Where each job stands; a job without a file and a container is forgotten."""
        statuses: dict[str, Lifecycle] = {}
        for name, record in list(self._records.items()):
            spec, fact = jobs.specs.get(name), jobs.facts.get(name)
            if spec is None and fact is None:
                self._note(record, JobState.STOPPED, jobs.observed.now_s)
                self._tiers.forget(name)
                del self._records[name]
            elif name in jobs.spared:
                statuses[name] = untouched_status(jobs.facts[name], jobs.spared[name])
            elif fact is not None and fact.adopted is not None:
                statuses[name] = adopted_status(fact.adopted, fact)
            else:
                begun = jobs.begun.get(name)
                started = begun if begun != record.forgiven else None
                statuses[name] = status_of(spec, fact, started, ended.get(name))
        return statuses

    def _starts(
        self,
        jobs: Roster,
        statuses: dict[str, Lifecycle],
        node: NodeView,
        members: Mapping[str, Member],
    ) -> Queued:
        """Admit jobs that should start, and set the statuses of those that wait."""
        observed, queued = jobs.observed, Queued()
        if all(status.call != "start" for status in statuses.values()):
            self._assignments.take({})
            return queued
        order = sorted(statuses, key=lambda name: self._records[name].rank)
        queue = [
            self._records[name].spec
            for name in order
            if statuses[name].state is JobState.WAITING
            and statuses[name].call == "start"
            and not (statuses[name].retry and self._backs_off(self._records[name], observed.now_s))
        ]
        present = [self._records[name].spec for name in order if statuses[name].state.holds]
        options, now_s = self._options, observed.now_s
        queued.gpus = self._assignments.queue(
            node, members, options.gpus, lambda job: self._finish(job, now_s), now_s
        )
        queued.verdicts = admit(
            queue,
            present,
            node,
            options.max_jobs,
            options.ceilings_of,
            queued.gpus,
            {one.name: promised_bytes(one, self._records[one.name].memory.use) for one in present},
        )
        self._assignments.take(queued.verdicts)
        for name in order:
            status, record = statuses[name], self._records[name]
            if status.call != "start":
                continue
            verdict = queued.verdicts.get(name)
            if verdict is not None and not verdict.admitted:
                statuses[name] = Lifecycle(JobState.WAITING, verdict.reason)
                continue
            if not observed.engine_ok:
                statuses[name] = Lifecycle(
                    status.state, "the job waits until the Docker Engine answers"
                )
                continue
            if record.refusal is not None and status.reason is None:
                statuses[name] = Lifecycle(status.state, record.refusal)
            elif status.retry and self._backs_off(record, observed.now_s):
                wait_s = record.retry_at_s - observed.now_s
                reason = f"{status.reason}; next try in {wait_s:.0f} s"
                statuses[name] = Lifecycle(status.state, reason)
                continue
            elif status.retry:
                record.retry_s = min(_RETRY_MOST_S, record.retry_s * 2)
                record.retry_at_s = observed.now_s + record.retry_s
            queued.starts += (record.spec,)
            gpus = self._assignments.start(name, jobs.facts.get(name), verdict)
            if gpus:
                queued.placements[name] = gpus
        return queued

    def _members(self, jobs: Roster, statuses: Mapping[str, Lifecycle]) -> dict[str, Member]:
        """Jobs that request or hold GPUs."""
        members: dict[str, Member] = {}
        for name, status in statuses.items():
            record, fact = self._records[name], jobs.facts.get(name)
            if record.spec.container.gpus or (fact is not None and fact.gpus):
                measures = record.measures
                members[name] = Member(
                    record.spec,
                    status.state,
                    fact,
                    measures.resume_s,
                    measures.usage.gpu_memory_bytes,
                )
        self._assignments.settle(members)
        return members

    def _move(
        self, observed: Observation, node: NodeView, members: Mapping[str, Member], queued: Queued
    ) -> Wanted | None:
        """The move that pays off now, if the engine answers."""
        if not members or not observed.engine_ok:
            return None
        return self._assignments.wanted(
            node, members, self._options.gpus, queued.gpus, queued.verdicts, observed.now_s
        )

    def _finish(self, job: str, now_s: float) -> Forecast:
        """Forecast of when a job may end, from its last view and the last answer."""
        view = self._records[job].view
        if view is None:
            return unknown(f"{job} has not been observed yet")
        return finish_forecast(view, now_s, self._forecasts.get(job, ()))

    def _backs_off(self, record: JobRecord, now_s: float) -> bool:
        """Whether a failed start is still in back-off. Until then it blocks no other job."""
        if record.retry_at_s == 0.0:
            record.retry_s = _RETRY_FIRST_S
            record.retry_at_s = now_s + record.retry_s
        return now_s < record.retry_at_s

    def _note(self, record: JobRecord, state: JobState, now_s: float) -> None:
        """Record the state, and wake the policy for arrivals and exits."""
        was = record.state is JobState.RUNNING
        runs = state is JobState.RUNNING
        if runs and not was:
            record.runs_since_s = now_s
            self._wakes.append(f"{record.spec.name}: arrived")
        if was and not runs:
            self._wakes.append(f"{record.spec.name}: left ({state})")
        record.state = state

    def _removals(self, jobs: Roster, statuses: Mapping[str, Lifecycle]) -> tuple[Remove, ...]:
        return tuple(
            removal(jobs.facts[name], self._records[name].spec, status.reason or "")
            for name, status in sorted(statuses.items())
            if status.call == "remove" and name in jobs.facts
        )

    def _endings(self, jobs: Roster, statuses: Mapping[str, Lifecycle]) -> tuple[Ended, ...]:
        return tuple(
            ending(self._records[name], status, jobs.facts.get(name))
            for name, status in sorted(statuses.items())
            if status.call == "record"
        )

    def _view(self, jobs: Roster, name: str, status: Lifecycle) -> JobView:
        """The job as policies see it: its last view, if nothing has changed since."""
        record, fact, now_s = self._records[name], jobs.facts.get(name), jobs.observed.now_s
        self._note(record, status.state, now_s)
        measures, last = record.measures, record.view
        if (
            measures.rests
            and last is not None
            and last.spec is record.spec
            and last.state is status.state
            and last.reason == status.reason
            and last.memory is record.memory.use
            and last.threads is record.threads.use
            and last.tiers == self._tiers.tiers(name)
            and (last.desired is record.desired or last.desired == record.desired)
            and (last.blind, last.idle) == self._condition(now_s, record, fact, last.progress)
        ):
            return last
        progress = measures.progress(fact, now_s)
        record.view = view_of(
            record,
            status,
            fact,
            progress=progress,
            condition=self._condition(now_s, record, fact, progress),
            gpus=self._assignments.of(name, fact),
            idle_class=self._options.idle_class,
            tiers=self._tiers.tiers(name),
            diverged=self._tiers.diverged(name),
            max_failed_ratio=self._max_failed_ratio(record),
        )
        return record.view

    def _condition(
        self, now_s: float, record: JobRecord, fact: ContainerFact | None, progress: Progress
    ) -> Condition:
        if fact is None or record.state is not JobState.RUNNING:
            return NEITHER
        measures = record.measures
        return condition(
            record.spec.target,
            fact,
            progress,
            measures.silence(now_s),
            measures.usage,
            began_s=max(record.runs_since_s, measures.started_at_s or 0.0),
            now_s=now_s,
            after_s=self._options.blind_after_s,
            max_failed_ratio=self._max_failed_ratio(record),
        )

    def _max_failed_ratio(self, record: JobRecord) -> float:
        target = record.spec.target
        own = target.max_failed_ratio if isinstance(target, LatencyTarget) else None
        return self._options.max_failed_ratio if own is None else own

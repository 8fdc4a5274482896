"""What is known of each job: facts folded in, one snapshot out.

Owns the only mutable state of the core: the jobs' records and their measuring windows. It is a
cache: after a restart the engine's listing, the job files and the records of ended jobs rebuild it.
It must not decide limits, and must not act: what facts call for is returned, not done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlsched.control.admission import admit
from dlsched.control.gpus.assignments import Assignments, Member
from dlsched.control.ledger.blindness import blindness
from dlsched.control.ledger.desired import Wish
from dlsched.control.ledger.job_record import (
    JobRecord,
    changes_of,
    ending,
    is_lifted,
    removal,
    unknown_spec,
    view_of,
    without,
)
from dlsched.control.ledger.lifecycle import Standing, adopted_standing, left_alone, standing
from dlsched.control.ledger.options import LedgerOptions
from dlsched.control.ledger.ownership import claimants
from dlsched.control.ledger.tiers import Climbs
from dlsched.control.ledger.update import Folded, Queued
from dlsched.estimate.finish import finish_forecast
from dlsched.estimate.gpu_use import gpu_uses
from dlsched.model.actions import Outcome, Remove, Resize, Start
from dlsched.model.facts import Begun, ContainerFact, Observation
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import JobSpec, Limits
from dlsched.model.state import Delivered, Ended, JobState, JobView, NodeView, Progress, Snapshot

_RETRY_FIRST_S = 5.0
_RETRY_MOST_S = 300.0


class Ledger:
    """The jobs' records, for as long as the agent lives; only the loop's thread uses them."""

    def __init__(
        self,
        options: LedgerOptions,
        cycle: int = 0,
        delivered: Mapping[str, Delivered] | None = None,
    ) -> None:
        """`delivered` are the durable words that an earlier agent left, by job."""
        self._options = options
        self._climbs = Climbs(delivered or {})
        self._assignments = Assignments()
        self._records: dict[str, JobRecord] = {}
        self._cycle = cycle
        self._arrived = 0
        self._wakes: list[str] = []
        self._host: tuple[float, float] | None = None
        self.outlooks: Mapping[str, tuple[Forecast, ...]] = {}  # of the last report: the queue's

    def fold(self, seen: Observation, wish: Wish, ended: Mapping[str, Ended]) -> Folded:
        """One observation, the wish and the durable records become one snapshot."""
        self._cycle += 1
        waiting = wish.waiting(seen.containers)
        wish = replace(wish, specs=without(wish.specs, waiting))
        found = claimants(seen.containers, wish.specs, self._known)
        facts, specs = found.facts, {**found.adopted, **wish.specs}
        begun = {item.job: item for item in seen.begun}
        alarms = [*found.alarms, *seen.left_alone]
        alarms += [
            f"{job}: its file waits: container {one.container_id[:12]} of another has the name"
            for job, one in sorted(waiting.items())
        ]
        removals: list[Remove] = []
        spared = {
            name: why
            for name, fact in facts.items()
            if name not in specs and (why := wish.spares(fact)) is not None
        }
        alarms += [f"{name}: left alone: {why}" for name, why in sorted(spared.items())]
        self._take_in(specs, facts, begun, seen.now_s)
        used_core_s = self._measure(seen, facts)
        node = self._node(seen, used_core_s)

        standings: dict[str, Standing] = {}
        for name, record in list(self._records.items()):
            spec, fact = specs.get(name), facts.get(name)
            if spec is None and fact is None:
                self._note(record, JobState.STOPPED, seen.now_s)
                self._climbs.forget(name)
                del self._records[name]
            elif name in spared:
                standings[name] = left_alone(facts[name], spared[name])
            elif fact is not None and fact.adopted is not None:
                standings[name] = adopted_standing(fact.adopted, fact)
            else:
                started = begun.get(name) if begun.get(name) != record.forgiven else None
                standings[name] = standing(spec, fact, started, ended.get(name))

        members = self._members(standings, facts)
        self._assignments.settle(members)
        queued = self._starts(seen, standings, facts, node, members)
        alarms += self._assignments.troubles(node, members, self._options.gpus)
        endings: list[Ended] = []
        views: list[JobView] = []
        for name in sorted(standings):
            record, place, fact = self._records[name], standings[name], facts.get(name)
            self._note(record, place.state, seen.now_s)
            if place.call == "remove" and fact is not None:
                removals.append(removal(fact, record.spec, place.reason or ""))
            if place.call == "record":
                endings.append(ending(record, place, fact))
            views.append(self._view(seen.now_s, record, place, fact))
        return Folded(
            snapshot=Snapshot(
                cycle=self._cycle,
                now_s=seen.now_s,
                node=node,
                jobs=tuple(views),
                window_s=self._options.window_s,
                wakes=tuple(self._wakes),
            ),
            starts=queued.starts,
            placements=queued.placements,
            moves=self._moves(seen, node, members, queued),
            removals=tuple(removals),
            ended=tuple(endings),
            lifts=tuple(
                name for name, word in ended.items() if is_lifted(wish, standings.get(name), word)
            ),
            delivered=self._climbs.deliveries(),
            undelivered=self._climbs.voided(
                specs, {*self._records, *wish.claimed}, settled=wish.settled
            ),
            alarms=tuple(alarms),
        )

    def adopt(self, options: LedgerOptions) -> None:
        """Other settings hold from the next fold on."""
        self._options = options
        for record in self._records.values():
            record.view = None

    def decided(self, limits: Mapping[str, Limits]) -> None:
        """The policy was asked: its wakes are used up, its guarded limits are now desired."""
        self._wakes.clear()
        for name, wanted in limits.items():
            if name in self._records:
                self._records[name].desired = wanted

    def applied(self, outcomes: Sequence[Outcome], now_s: float) -> None:
        """What was done: a changed limit starts a new measuring window."""
        for outcome in outcomes:
            self._assignments.applied(outcome, now_s)
            record = self._records.get(outcome.action.job)
            if record is None:
                continue
            if isinstance(outcome.action, Start):
                done = outcome.status in ("done", "begun")
                record.refusal = None if done else outcome.detail
                record.forgiven = None
            if outcome.status in ("done", "begun") and isinstance(outcome.action, Resize | Start):
                changed = record.measures.limited(outcome.action.limits, now_s)
                if changed and isinstance(outcome.action, Start):
                    record.desired = outcome.action.limits

    def _take_in(
        self,
        specs: Mapping[str, JobSpec],
        facts: Mapping[str, ContainerFact],
        begun: Mapping[str, Begun],
        now_s: float,
    ) -> None:
        """Records for new names, changed specs for known ones."""
        for name in sorted({*specs, *facts}):
            spec = specs.get(name)
            record = self._records.get(name)
            if record is None:
                self._arrived += 1
                known = spec or unknown_spec(facts[name])
                self._records[name] = JobRecord(
                    spec=known,
                    order=self._arrived,
                    arrived_s=now_s,
                    forgiven=begun.get(name),
                )
            elif spec is not None and spec is not record.spec and spec != record.spec:
                if record.state is JobState.RUNNING:
                    self._wakes += changes_of(name, record.spec, spec)
                record.spec = spec
                record.retry_at_s = record.retry_s = 0.0

    def _measure(self, seen: Observation, facts: Mapping[str, ContainerFact]) -> float:
        """Fold usage and progress in; returns what our jobs used since the last cycle, core-s."""
        total = 0.0
        uses = gpu_uses(seen.node.gpus, facts.values()) if seen.node else {}
        for name, record in self._records.items():
            fact = facts.get(name)
            known = record.folded is record.spec
            if known and fact is not None and record.measures.rests_on(fact, seen.now_s):
                continue
            record.folded = record.spec
            self._climbs.observe(record.spec, fact, self._options.tier_evaluations)
            if fact is None:
                record.measures.absent()
                continue
            if record.measures.is_new(fact):
                record.retry_at_s = record.retry_s = 0.0
                if record.state is None:  # a restarted agent wants what it finds, until it decides
                    record.desired = fact.actual
            total += record.measures.fold(
                fact, seen.now_s, self._options.window_s, uses.get(fact.container_id)
            )
        return total

    def _node(self, seen: Observation, used_core_s: float) -> NodeView:
        cores = seen.node.cores if seen.node else 1.0
        memory_bytes = seen.node.memory_bytes if seen.node else 0
        foreign = None
        if seen.host_busy_core_s is not None:
            if self._host is not None and seen.now_s > self._host[0]:
                busy = seen.host_busy_core_s - self._host[1] - used_core_s
                foreign = max(0.0, busy / (seen.now_s - self._host[0]))
            self._host = (seen.now_s, seen.host_busy_core_s)
        capacity = cores if self._options.capacity_cores is None else self._options.capacity_cores
        return NodeView(
            capacity_cores=max(0.01, min(capacity, cores) - self._options.reserve_cores),
            cores=cores,
            memory_bytes=max(0, memory_bytes - self._options.reserve_memory_bytes),
            grain_cores=seen.node.grain_cores if seen.node else 0.001,
            foreign_cores=foreign,
            gpus=self._assignments.views(seen.node, seen.containers, self._options.gpus),
            gpu_trouble=seen.node.gpu_trouble if seen.node else None,
        )

    def _starts(
        self,
        seen: Observation,
        standings: dict[str, Standing],
        facts: Mapping[str, ContainerFact],
        node: NodeView,
        members: Mapping[str, Member],
    ) -> Queued:
        """Admit what wants to start; rewrites the standings of what has to wait."""
        queued = Queued()
        if all(place.call != "start" for place in standings.values()):
            self._assignments.take({})
            return queued
        order = sorted(standings, key=lambda name: self._records[name].rank)
        queue = [
            self._records[name].spec
            for name in order
            if standings[name].state is JobState.WAITING
            and standings[name].call == "start"
            and not (standings[name].retry and self._backs_off(self._records[name], seen.now_s))
        ]
        present = [self._records[name].spec for name in order if standings[name].state.holds]
        options = self._options
        queued.gpus = self._assignments.queue(
            node, members, options.gpus, lambda job: self._outlook(job, seen.now_s), seen.now_s
        )
        queued.verdicts = admit(
            queue, present, node, options.max_jobs, options.ceilings_of, queued.gpus
        )
        self._assignments.take(queued.verdicts)
        for name in order:
            place, record = standings[name], self._records[name]
            if place.call != "start":
                continue
            verdict = queued.verdicts.get(name)
            if verdict is not None and not verdict.admitted:
                standings[name] = Standing(JobState.WAITING, verdict.reason)
                continue
            if not seen.engine_ok:
                standings[name] = Standing(place.state, "waits for the engine")
                continue
            if record.refusal is not None and place.reason is None:
                standings[name] = Standing(place.state, record.refusal)
            elif place.retry and self._backs_off(record, seen.now_s):
                wait_s = record.retry_at_s - seen.now_s
                reason = f"{place.reason}; tried again in {wait_s:.0f} s"
                standings[name] = Standing(place.state, reason)
                continue
            elif place.retry:
                record.retry_s = min(_RETRY_MOST_S, record.retry_s * 2)
                record.retry_at_s = seen.now_s + record.retry_s
            queued.starts += (record.spec,)
            gpus = self._assignments.start(name, facts.get(name), verdict)
            if gpus:
                queued.placements[name] = gpus
        return queued

    def _members(
        self, standings: Mapping[str, Standing], facts: Mapping[str, ContainerFact]
    ) -> dict[str, Member]:
        """The jobs that have to do with GPUs."""
        members: dict[str, Member] = {}
        for name, place in standings.items():
            record, fact = self._records[name], facts.get(name)
            if record.spec.container.gpus or (fact is not None and fact.gpus):
                measures = record.measures
                members[name] = Member(
                    record.spec,
                    place.state,
                    fact,
                    measures.resume_s,
                    measures.usage.gpu_memory_bytes,
                )
        return members

    def _moves(
        self, seen: Observation, node: NodeView, members: Mapping[str, Member], queued: Queued
    ) -> dict[str, tuple[tuple[str, ...], str]]:
        """The move that is worth it now, if the engine can make it."""
        if not members or not seen.engine_ok:
            return {}
        wanted = self._assignments.wanted(
            node, members, self._options.gpus, queued.gpus, queued.verdicts, seen.now_s
        )
        return {} if wanted is None else {wanted.job: (wanted.gpus, wanted.why)}

    def _outlook(self, job: str, now_s: float) -> Forecast:
        """When a job may end, from what was last known of it."""
        view = self._records[job].view
        if view is None:
            return Forecast(ForecastKind.UNKNOWN, "finish", why=f"{job} tells nothing yet")
        return finish_forecast(view, now_s, self.outlooks.get(job, ()))

    def _known(self, name: str) -> str | None:
        """The container that stood for that job so far."""
        record = self._records.get(name)
        return record.measures.container_id if record is not None else None

    def _backs_off(self, record: JobRecord, now_s: float) -> bool:
        """Whether its failed start is not tried again yet; so long it holds back nobody."""
        if record.retry_at_s == 0.0:
            record.retry_s = _RETRY_FIRST_S
            record.retry_at_s = now_s + record.retry_s
        return now_s < record.retry_at_s

    def _note(self, record: JobRecord, state: JobState, now_s: float) -> None:
        """Tell the policy of arrivals and exits."""
        was = record.state is JobState.RUNNING
        runs = state is JobState.RUNNING
        if runs and not was:
            record.runs_since_s = now_s
            self._wakes.append(f"{record.spec.name}: arrived")
        if was and not runs:
            self._wakes.append(f"{record.spec.name}: left ({state})")
        record.state = state

    def _view(
        self, now_s: float, record: JobRecord, place: Standing, fact: ContainerFact | None
    ) -> JobView:
        measures, last = record.measures, record.view
        if (
            measures.rests
            and last is not None
            and last.spec is record.spec
            and last.state is place.state
            and last.reason == place.reason
            and (last.desired is record.desired or last.desired == record.desired)
            and last.blind == self._blindness(now_s, record, fact, last.progress)
        ):
            return last
        progress = measures.progress(fact, now_s)
        record.view = view_of(
            record,
            place,
            fact,
            progress=progress,
            blind=self._blindness(now_s, record, fact, progress),
            gpus=self._assignments.of(record.spec.name, fact),
            idle_class=self._options.idle_class,
            tiers=self._climbs.tiers(record.spec.name),
        )
        return record.view

    def _blindness(
        self, now_s: float, record: JobRecord, fact: ContainerFact | None, progress: Progress
    ) -> str | None:
        if fact is None or record.state is not JobState.RUNNING:
            return None
        measures = record.measures
        return blindness(
            record.spec.target,
            fact,
            progress,
            began_s=max(record.runs_since_s, measures.started_at_s or 0.0),
            idle=measures.idle,
            now_s=now_s,
            after_s=self._options.blind_after_s,
        )

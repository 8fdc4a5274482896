"""The controller of a cluster: observe, update, decide, write records, order, report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from dlsched.cluster.core.decider import ClusterAnswer, ClusterDecider
from dlsched.cluster.core.following import RESERVED_S
from dlsched.cluster.core.guards import REST_S
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.leases import (
    LEASE_S,
    MARGIN_S,
    RUNS,
    Absent,
    absent_for,
    leased,
    may_run,
    weakened,
)
from dlsched.cluster.core.ledger import ClusterFacts, ClusterLedger
from dlsched.cluster.core.occupancy import lacks
from dlsched.cluster.core.rebuilding import held_twice, holds, lost, rebuilt
from dlsched.cluster.core.records import (
    LIKELY_EPOCH_MAX,
    Holding,
    Order,
    Phase,
    Record,
    RecordState,
    Request,
    Verb,
    Wanted,
    change_job,
    end_job,
    place_job,
)
from dlsched.cluster.core.reports import NodeReport
from dlsched.cluster.core.snapshot import ClusterSnapshot, NodeState
from dlsched.cluster.core.transit import (
    Acts,
    Held,
    begin_move,
    is_preparing,
    next_acts,
)
from dlsched.cluster.requests import Requests
from dlsched.cluster.round_report import PAUSE_S, RoundReport
from dlsched.cluster.store import (
    ClusterStore,
    Member,
    StaleRecord,
    Stored,
    StoreError,
)

UNHEARD_S = LEASE_S + MARGIN_S
"""A node that is silent for longer is taken for lost with what it held."""


class Waiting:
    """What the controller waits for before a job may start."""

    def __init__(self, ledger: ClusterLedger) -> None:
        self._ledger = ledger
        self._is_new = False
        """Whether the store has been without any record: then nodes that have not answered yet may
        hold any job."""
        self.for_nodes = False
        """Whether a job waits for a node to answer."""

    def update(self, facts: ClusterFacts, report: RoundReport) -> dict[str, Mapping[str, Holding]]:
        """Say in the report which jobs wait, and for what. Returns what nodes hold of jobs whose
        records can be written again."""
        self._is_new = self._is_new or not facts.records
        report.waits = self._still_there(facts, report)
        held = lost(facts)
        unheard = self._unheard(held, facts, report.forgotten)
        self.for_nodes = bool(unheard)
        limit = f"at most {UNHEARD_S:.0f} s"
        for job, silent in unheard.items():
            names = ", ".join(silent)
            report.waits[job] = f"waits for a report of {names}, which may hold the job, {limit}"
        ready: dict[str, Mapping[str, Holding]] = {
            job: those for job, those in held.items() if job not in unheard
        }
        report.waits |= dict.fromkeys(
            ready, "the job's record was lost; a new one is being written"
        )
        return ready

    def _still_there(self, facts: ClusterFacts, report: RoundReport) -> dict[str, str]:
        """Jobs that are to start again, but whose last container may still run, and why."""
        again = {
            job: record
            for job, desired in facts.desired.items()
            if (record := facts.records.get(job)) and record.wants_place(desired.spec.digest)
        }
        if not again:
            return {}
        found = {}
        held = facts.held()
        down_s = self._ledger.down_s(report.down, facts.now_s)
        members = {name: one.up for name, one in report.members.items()}
        for job, record in again.items():
            absent = absent_for(record, down_s, report.forgotten, paused=report.paused)
            if (why := may_run(record, held[job], members, absent.off)) is not None:
                found[job] = why
        return found

    def _unheard(
        self, held: Collection[str], facts: ClusterFacts, forgotten: Collection[str]
    ) -> dict[str, list[str]]:
        """Nodes without an answer now that may hold a job without a record, by such a job."""
        silent = [
            name
            for name in sorted(facts.nodes.keys() - facts.reports.keys())
            if name not in forgotten and self._ledger.unanswered_s(name, facts.now_s) <= UNHEARD_S
        ]
        missing: Iterable[str] = facts.desired.keys() - facts.records.keys() if silent else ()
        found = {
            job: [name for name in silent if job in held or self._may_hold(name, job)]
            for job in sorted(missing)
        }
        return {job: names for job, names in found.items() if names}

    def _may_hold(self, node: str, job: str) -> bool:
        last = self._ledger.last_report(node)
        if last is None:
            return self._is_new
        held = last.holding(job)
        return held is not None and holds(held)


class Agents(Protocol):
    """Nothing blocks or raises: what came of an order shows in later reports."""

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        """The node's present report; None: no answer. `placed` confirms which jobs are its own, by
        their epoch."""

    def send(self, order: Order) -> None:
        """Send an order, which may be lost. The agent follows it once, however often it comes."""


KEPT_S = 86_400.0
"""How long the record of a job that is gone stays, as its epochs must not be used again."""
PREPARE_S = 30.0
"""How long a target may take to keep room, before the move is dropped; then it pulls the image."""
LEAST_S = 0.1
BUSY_S = 1.0
"""Between rounds while a job starts or moves."""

_WITH_FILE = (Verb.PREPARE, Verb.ARRIVE)
"""Orders that need the job's file."""


class DesiredJobs(Protocol):
    """Where the jobs come from: the managers' watch folder, or a trace."""

    def scan(self, now_s: float) -> Mapping[str, DesiredJob]: ...

    def unread(self) -> Collection[str]:
        """Jobs that are desired, by the last scan, but whose file cannot be read: what runs of them
        goes on."""


class ClusterController:
    """Runs rounds. It touches no container, and everything that it knows can be lost."""

    def __init__(
        self,
        name: str,
        store: ClusterStore,
        agents: Agents,
        desired: DesiredJobs,
        decider: ClusterDecider,
        now_s: Callable[[], float],
        publish: Callable[[RoundReport], None] = lambda _: None,
    ) -> None:
        self.name = name
        self._store, self._agents, self._desired = store, agents, desired
        self._now_s = now_s
        self._ledger = ClusterLedger()
        self._decider = decider
        self._publish = publish
        self._moves: dict[str, tuple[str, float]] = {}
        """Moves whose target is being prepared: target, and since when."""
        self._waiting = Waiting(self._ledger)
        self._requests = Requests(self._store, decider, self._moves)

    def round(self) -> RoundReport:
        report = RoundReport()
        now_s = self._now_s()
        try:
            if self._store.leader() == self.name:
                self._lead(now_s, report)
            else:
                self._moves.clear()
        except StoreError as error:
            report.alarms.append(f"the store: {error}")
        if report.snapshot is None:
            self._ledger.begin_again()  # agents may answer another controller now
        self._publish(report)
        return report

    def _lead(self, now_s: float, report: RoundReport) -> None:
        members, stored = self._store.nodes(), dict(self._store.records())
        report.members = members
        requests = self._store.requests()
        report.facts = facts = self._observe(now_s, members, stored)
        report.paused = any(one.verb is Wanted.PAUSE for one in requests)
        report.forgotten = self._requests.forgotten(requests, members, facts, report)
        if report.paused:
            self._moves.clear()
            report.requests[Request(Wanted.PAUSE)] = "`dlsched cluster resume` ends it"
        without_record = self._waiting.update(facts, report)
        report.snapshot = snapshot = self._ledger.update(facts, self._moves, report.waits)
        if self._rebuild(without_record, facts, stored, report):
            report.next_s = BUSY_S
            return
        self._drop_unfit(snapshot)
        moves = [one for one in requests if one.verb is Wanted.MOVE]
        began = self._requests.by_hand(moves, snapshot, facts, report)
        if not began and not report.paused:
            report.answer = self._decider.ask(snapshot)
            self._decided(report.answer, facts, stored, report)
        self._go_on(facts, stored, report)
        report.alarms += held_twice(facts)
        report.records = {job: one.record for job, one in stored.items()}
        report.next_s = BUSY_S if self._waiting.for_nodes or self._is_busy(stored) else PAUSE_S
        if not report.paused:
            due_s = self._decider.due_in_s(now_s)
            report.next_s = min(report.next_s, max(due_s, LEAST_S))

    # ------------------------------------------------------------------ observe

    def _observe(
        self, now_s: float, members: Mapping[str, Member], stored: Mapping[str, Stored]
    ) -> ClusterFacts:
        records = {job: one.record for job, one in stored.items()}
        states = {
            name: NodeState.DRAINING if one.draining else NodeState.READY
            for name, one in members.items()
        }
        placed: dict[str, dict[str, int]] = {}
        for record in records.values():
            if record.state is RecordState.PLACED:
                placed.setdefault(record.on, {})[record.job] = record.epoch
        reports = {}
        for node in members:
            answer = self._agents.report(node, placed.get(node, {}))
            if answer is not None:
                reports[node] = answer
        desired = self._desired.scan(now_s)
        unread = frozenset(self._desired.unread())
        labels = {name: {"host": one.host, **one.labels} for name, one in members.items()}
        return ClusterFacts(now_s, states, records, reports, desired, unread, labels)

    def _rebuild(
        self,
        held: Mapping[str, Mapping[str, Holding]],
        facts: ClusterFacts,
        stored: dict[str, Stored],
        report: RoundReport,
    ) -> bool:
        """Write the records that the store has lost; whether one could be written."""
        for job, holdings in sorted(held.items()):
            self._write(rebuilt(job, facts.desired[job], holdings), stored, report)
        report.records = {job: one.record for job, one in stored.items()}
        return bool(report.written)

    # ------------------------------------------------------------------ act

    def _drop_unfit(self, snapshot: ClusterSnapshot) -> None:
        """Drop moves that have not begun, and whose target takes no such job any more."""
        jobs = {one.name: one for one in snapshot.jobs}
        nodes = {one.name: one for one in snapshot.nodes}
        for name, (target, _) in list(self._moves.items()):
            job, node = jobs.get(name), nodes.get(target)
            if job is None or node is None or lacks(job, node) is not None:
                del self._moves[name]

    def _decided(
        self,
        answer: ClusterAnswer,
        facts: ClusterFacts,
        stored: dict[str, Stored],
        report: RoundReport,
    ) -> None:
        """Write what was decided. The orders follow from the records."""
        if answer.failure:
            report.alarms.append(f"policy {self._decider.name}: {answer.failure}")
        holdings = facts.holdings() if answer.approved.place else {}
        for job, node in answer.approved.place.items():
            spec = facts.desired[job].spec
            before = stored[job].record if job in stored else None
            epochs = [one.epoch for one in holdings.get(job, {}).values()]
            known = max((one for one in epochs if one <= LIKELY_EPOCH_MAX), default=0)
            placed = place_job(job, node, spec.digest, before, known)
            self._write(leased(placed, spec), stored, report)
        for move in answer.approved.moves:
            self._moves.setdefault(move.job, (move.target, facts.now_s))

    def _go_on(self, facts: ClusterFacts, stored: dict[str, Stored], report: RoundReport) -> None:
        """Bring every job one step on: write its record until only orders are left, send them."""
        down_s = self._ledger.down_s(report.down, facts.now_s)
        held_by = facts.held()
        nowhere = Held(facts.reports.keys(), {})
        for job in sorted(stored):
            held = held_by.get(job, nowhere)
            desired = facts.desired.get(job)
            # One whose file cannot be read now could not be placed again.
            paused = report.paused or (desired is None and job in facts.unread)
            absent = absent_for(stored[job].record, down_s, report.forgotten, paused=paused)
            acts = self._acts(stored[job].record, held, facts, absent)
            while (write := acts.write) is not None:
                if acts.failed:
                    report.failed[job] = acts.failed
                    self._ledger.rest(job, facts.now_s + REST_S)
                written = self._write(write, stored, report)
                acts = next_acts(write, held, 0.0, absent.gone, absent.off) if written else Acts()
            for order in acts.orders:
                if desired is None and job in facts.unread and order.verb in _WITH_FILE:
                    continue
                self._agents.send(replace(order, text=desired.text if desired else ""))
            if not acts.orders and self._is_forgotten(job, facts):
                self._store.remove(job, stored.pop(job).version)

    def _acts(
        self,
        record: Record,
        held: Held,
        facts: ClusterFacts,
        absent: Absent,
    ) -> Acts:
        job, now_s = record.job, facts.now_s
        desired = facts.desired.get(job)
        runs = record.state is not RecordState.ENDED
        if facts.is_gone(job) and (runs or record.exit_code is not None):
            self._moves.pop(job, None)
            return Acts(end_job(record, "the job was withdrawn"))
        if desired is not None and (changed := self._changed(record, desired, held)) is not None:
            return Acts(changed)
        waited_s = self._ledger.waited_s(job, now_s)
        acts = next_acts(record, held, waited_s, absent.gone, absent.off)
        if job not in self._moves:
            return acts
        target, since_s = self._moves[job]
        pulls = is_preparing(record, held.holdings.get(target))
        limit_s = RESERVED_S if pulls else PREPARE_S
        if record.state is not RecordState.PLACED or acts.write or now_s - since_s > limit_s:
            del self._moves[job]
            return acts
        begun = begin_move(record, target, held)
        return Acts(begun.write, (*acts.orders, *begun.orders))

    def _changed(self, record: Record, desired: DesiredJob, held: Held) -> Record | None:
        """The record, if its node goes by another file than is desired, or now goes by it, or may
        get it with its next order."""
        own, state = held.holdings.get(record.on), record.state
        if state is RecordState.ENDED or (own is None and record.on not in held.answered):
            return None
        changed = record
        if own is None or own.epoch < record.epoch:
            changed = weakened(record, desired.spec)
        elif state is RecordState.PLACED and own.epoch == record.epoch:
            if own.file == desired.version and own.phase in (*RUNS, Phase.ENDED):
                changed = leased(record, desired.spec)
            elif own.file not in ("", desired.version) and own.phase in RUNS:
                self._moves.pop(record.job, None)
                changed = change_job(weakened(record, desired.spec))
        return None if changed is record else changed

    def _is_forgotten(self, job: str, facts: ClusterFacts) -> bool:
        """Whether its record can go: it has not been desired for so long that no order from then
        can still arrive, and its node has answered since."""
        record = facts.records.get(job)
        return (
            record is not None
            and record.state is RecordState.ENDED
            and facts.is_gone(job)
            and (record.on in facts.reports or record.on not in facts.nodes)
            and self._ledger.waited_s(job, facts.now_s) > KEPT_S
        )

    def _write(self, record: Record, stored: dict[str, Stored], report: RoundReport) -> bool:
        """Whether the record is committed: another controller may have been faster."""
        before = stored.get(record.job)
        try:
            version = self._store.put(record, before.version if before else None)
        except StaleRecord as error:  # the other jobs go on
            report.alarms.append(f"the store: {error}")
            return False
        stored[record.job] = Stored(record, version)
        report.written.append(record)
        return True

    def _is_busy(self, stored: Mapping[str, Stored]) -> bool:
        """Whether some job starts, moves or is yet to be cleared away."""
        return bool(self._moves) or any(
            one.record.state not in (RecordState.PLACED, RecordState.ENDED)
            for one in stored.values()
        )

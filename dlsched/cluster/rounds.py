"""From rounds of the controller to what people read: log lines, events of jobs, the snapshot."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from dlsched.api.cluster_schema import (
    AlternativeRow,
    ClusterTotals,
    EventRow,
    JobRow,
    NodeRow,
    QueueRow,
)
from dlsched.api.status import target_of
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.records import Phase, Record, RecordState
from dlsched.cluster.core.snapshot import ALTERNATIVES_MAX, ClusterJob, NodeState
from dlsched.cluster.judging import MoveJudge
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.status_file import host_names
from dlsched.cluster.store import Member
from dlsched.model.units import render_bytes

EVENTS_MAX = 10
"""Of each job."""
_NODE_ID = re.compile(r"\b[a-z0-9]{25}\b")


class RoundLog:
    """What the rounds so far came to. All of it can be lost."""

    def __init__(self) -> None:
        self._records: Mapping[str, Record] = {}
        self._events: dict[str, deque[EventRow]] = {}
        self._since_s: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        self._alternatives: dict[str, tuple[AlternativeRow, ...]] = {}
        """Both by job, of the last time that the policy was asked."""
        self._moves = MoveJudge()

    def take(self, report: RoundReport, wall_time: str) -> list[str]:
        """Take a round into account; returns what happened in it, a line each."""
        if report.facts is None:
            return []
        names = names_of(report.members)
        self._moves.take(report, wall_time)
        if report.answer.asked:
            self._alternatives = {
                job: tuple(
                    AlternativeRow(one.node, by_host(one.refused, names), one.gain_s)
                    for one in others[:ALTERNATIVES_MAX]
                )
                for job, others in report.answer.decision.alternatives.items()
            }
            reasons = {**report.answer.decision.why, **report.answer.approved.refused}
            self._reasons = {job: by_host(text, names) for job, text in reasons.items()}
        lines = []
        for record, before in report.changes():
            text = happened(record, before, report.failed.get(record.job, ""), names)
            lines.append(f"{record.job}: {text}")
            self._note(record.job, EventRow(wall_time, text))
        for request, what in report.done.items():
            text = by_host(f"asked to {request}: {what}", names)
            lines.append(text)
            if request.subject in report.records:
                self._note(request.subject, EventRow(wall_time, text))
        for job in (self._events.keys() | self._since_s.keys()) - report.records.keys():
            self._events.pop(job, None)
            self._since_s.pop(job, None)
        for job, record in report.records.items():
            if self._records.get(job) != record:  # also by another manager that led meanwhile
                self._since_s[job] = report.facts.now_s
        self._records = report.records
        return lines

    def _note(self, job: str, event: EventRow) -> None:
        self._events.setdefault(job, deque(maxlen=EVENTS_MAX)).append(event)

    def totals(self) -> ClusterTotals:
        """Counts of all rounds."""
        return self._moves.totals()

    # ------------------------------------------------------------------ rows

    def jobs(self, report: RoundReport) -> tuple[JobRow, ...]:
        """Those that have a node, or ended by themselves and are still desired."""
        facts, snapshot = report.facts, report.snapshot
        if facts is None or snapshot is None:
            return ()
        views = {job.name: job for job in snapshot.jobs}
        targets = {one.job: one.target for one in snapshot.moving}
        names = names_of(report.members)
        return tuple(
            self._job(record, facts, views.get(name), targets.get(name), names)
            for name, record in sorted(report.records.items())
            if not facts.is_gone(name)
            and (record.state is not RecordState.ENDED or record.exit_code is not None)
        )

    def _job(
        self,
        record: Record,
        facts: ClusterFacts,
        view: ClusterJob | None,
        target: str | None,
        names: Mapping[str, str],
    ) -> JobRow:
        name, desired = record.job, facts.desired.get(record.job)
        left = view.left if view else None
        since_s = self._since_s.get(name, facts.now_s)
        unread = "" if desired else "the job's submission cannot be read: the job runs on unchanged"
        return JobRow(
            name=name,
            node=record.source or record.on,
            target=(record.on if record.source else target),
            state=job_state(record, facts),
            epoch=record.epoch,
            since_s=max(facts.now_s - since_s, 0.0),
            moves=record.moves,
            goal=_goal(desired),
            measured=view.evaluations[-1].value if view and view.evaluations else None,
            granted_cores=view.granted_cores if view else None,
            left_core_s=left.mid_core_s if left else None,
            unmovable=(view.unmovable or "") if view else "",
            why=unread or self._reasons.get(name, "") or record.why,
            events=tuple(self._events.get(name, ())),
            moved=self._moves.rows(name, lambda text: by_host(text, names)),
            alternatives=self._alternatives.get(name, ()) if view else (),
        )

    def queue(self, report: RoundReport) -> tuple[QueueRow, ...]:
        snapshot = report.snapshot
        if snapshot is None or report.facts is None:
            return ()
        desired, names = report.facts.desired, names_of(report.members)
        rows = [
            (job, desired[job].arrived_s, by_host(why, names))
            for job, why in sorted(report.waits.items())
        ]
        rows += [
            (one.name, one.arrived_s, self._reasons.get(one.name, "no node has been asked yet"))
            for one in snapshot.queue
            if one.name not in report.answer.approved.place
        ]
        return tuple(
            QueueRow(job, max(snapshot.now_s - arrived_s, 0.0), why) for job, arrived_s, why in rows
        )


def asked(report: RoundReport) -> tuple[str, ...]:
    """What people have asked for and is not done yet, and what it waits for."""
    names = names_of(report.members)
    return tuple(by_host(f"{request}: {what}", names) for request, what in report.requests.items())


def nodes(report: RoundReport, problems: Mapping[str, str]) -> tuple[NodeRow, ...]:
    """All members, also those that have never answered."""
    if report.snapshot is None:
        return ()
    occupancy = Occupancy(report.snapshot)
    here: dict[str | None, list[ClusterJob]] = {}
    for job in report.snapshot.jobs:
        here.setdefault(job.node, []).append(job)
    return tuple(
        _node(member, here.get(name, ()), occupancy, problems.get(name, ""))
        for name, member in report.members.items()
    )


def _node(
    member: Member, here: Sequence[ClusterJob], occupancy: Occupancy, problem: str
) -> NodeRow:
    name = member.name
    state = NodeState.DRAINING if member.draining else NodeState.SILENT
    known = occupancy.nodes.get(name)
    used = ends = None
    if known is not None:
        state = known.state
        used = known.foreign_cores + sum(job.granted_cores for job in here)
        ends = max(occupancy.ends(name, occupancy.loads(name)), default=None)
    return NodeRow(
        name=name,
        host=member.host,
        address=member.address,
        state=state if member.up else "down",
        jobs=len(here),
        used_cores=used,
        capacity_cores=known.capacity_cores if known else None,
        ends_in_s=ends,
        report_age_s=known.age_s if known else None,
        problem=problem,
    )


def job_state(record: Record, facts: ClusterFacts) -> str:
    """The state of a job in one word, from its record and what its node holds."""
    if record.state is RecordState.ENDED:
        return "finished" if record.exit_code == 0 else "failed"
    if record.state is not RecordState.PLACED:
        return record.state.value
    report = facts.reports.get(record.on)
    if report is None:
        return "unknown"
    held = {one.job: one for one in report.holdings if one.epoch == record.epoch}
    own = held.get(record.job)
    if own is None or own.phase is Phase.ARRIVING:
        return "starting"
    return "running" if own.phase is Phase.REFUSED else own.phase.value


def happened(record: Record, before: Record | None, failure: str, names: Mapping[str, str]) -> str:
    """What a new record says, in plain words. `names`: of the nodes, as people know them."""

    def at(node: str | None) -> str:
        return names.get(node or "", node or "?")

    state = record.state
    was = None if before is None else before.state
    if state is RecordState.LEAVING:
        return f"leaves {at(record.on)} for {at(record.target)}"
    if state is RecordState.MOVING:
        saved = record.saved
        what = f"step {saved.step}, {render_bytes(saved.size_bytes)}" if saved else "nothing saved"
        return f"{at(record.on)} goes on with the job from {at(record.source)} ({what})"
    if state is RecordState.UNDOING:
        return f"the move to {at(record.on)} is given up: {failure or 'the move failed'}"
    if state is RecordState.RETURNING:
        return f"returns to {at(record.on)}"
    if state is RecordState.ENDED:
        if was is RecordState.ENDED and record.off:
            return f"no container of the job runs on {at(record.on)} any more"
        if record.exit_code is None:
            return f"ends on {at(record.on)}: {record.why or 'the job was withdrawn'}"
        # The reason has the program's own code; the record's says only whether it succeeded.
        return f"ended on {at(record.on)}: {record.why or f'exit code {record.exit_code}'}"
    if was is RecordState.MOVING:
        return f"has moved to {at(record.on)}"
    if was is RecordState.RETURNING:
        return f"runs on {at(record.on)} again"
    if was is RecordState.LEAVING:
        return f"stays on {at(record.on)}: {failure or 'the job has ended'}"
    if before is not None and was is RecordState.PLACED:
        goes = "goes by" if record.epoch == before.epoch else "gets"
        return f"{at(record.on)} {goes} the job's present file"
    return f"placed on {at(record.on)}"


def names_of(members: Mapping[str, Member]) -> dict[str, str]:
    """The nodes as people know them."""
    return host_names({name: one.host for name, one in members.items()})


def by_host(text: str, names: Mapping[str, str]) -> str:
    """A policy's reason, with hosts' names for the ids of a swarm's nodes."""
    return _NODE_ID.sub(lambda found: names.get(found[0], found[0]), text)


def changes(before: Mapping[str, str], rows: tuple[NodeRow, ...]) -> Iterator[str]:
    """Nodes whose state is another than before."""
    for row in rows:
        if before.get(row.name) != row.state:
            was = f", was {before[row.name]}" if row.name in before else ""
            why = f": {row.problem}" if row.problem else ""
            yield f"node {row.host or row.name}: {row.state}{was}{why}"


def _goal(desired: DesiredJob | None) -> str:
    target = target_of(desired.spec.target) if desired else None
    return target.text if target else ""

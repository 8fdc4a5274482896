"""The controller follows what people ask for: moves by hand, and nodes that are off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.records import RecordState, Request, Wanted
from dlsched.cluster.core.snapshot import ClusterSnapshot, Move
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.store import ClusterStore, Member

REQUEST_S = 60.0
"""How long a person's move is tried before it is given up: a new controller has no reports yet, and
one move waits for another."""


class Requests:
    """Requests that are in the store until they are done."""

    def __init__(
        self, store: ClusterStore, decider: ClusterDecider, moves: dict[str, tuple[str, float]]
    ) -> None:
        """`moves`: those whose target is being prepared; a move by hand is added."""
        self._store, self._decider, self._moves = store, decider, moves
        self._asked_s: dict[Request, float] = {}
        """When this controller first read a person's move."""

    def forgotten(
        self,
        requests: Sequence[Request],
        members: Mapping[str, Member],
        facts: ClusterFacts,
        report: RoundReport,
    ) -> frozenset[str]:
        """The nodes that a person declared off, but those of which the opposite shows."""
        found = set()
        named = {
            node
            for record in facts.records.values()
            if record.state is not RecordState.ENDED
            or (record.exit_code is None and not record.off and record.job in facts.desired)
            for node in (record.on, record.source, record.target)
        }
        for one in requests:
            node = one.subject
            if one.verb is not Wanted.FORGET:
                continue
            if node in facts.reports:
                self._done(one, f"{node} is not off: it answers", report)
            elif node in members and members[node].up:
                why = "its engine answers: start dlsched on that node, or stop the engine"
                self._done(one, f"{node} is not off: {why}", report)
            elif node not in members and node not in named:
                self._done(one, f"{node} is no longer a member, and no job needs it", report)
            else:
                found.add(node)
                report.requests[one] = (
                    f"jobs of {node} start on other nodes until {node} answers again"
                )
        return frozenset(found)

    def by_hand(
        self,
        requests: Sequence[Request],
        snapshot: ClusterSnapshot,
        facts: ClusterFacts,
        report: RoundReport,
    ) -> bool:
        """Follow a person's moves; whether one has just begun, after which the policy waits for
        the next round."""
        self._asked_s = {one: self._asked_s.get(one, facts.now_s) for one in requests}
        began = False
        for one in requests:
            job, target = one.subject, one.target
            record = facts.records.get(job)
            if record is None or record.state is RecordState.ENDED:
                self._done(one, f"{job} does not run", report)
            elif target in (record.target, record.on):
                what = "moves to" if record.state is not RecordState.PLACED else "is on"
                self._done(one, f"{job} {what} {target}", report)
            elif report.paused:
                self._asked_s[one] = facts.now_s
                report.requests[one] = "the cluster is paused"
            elif self._moves.get(job, ("", 0.0))[0] == target:
                there = facts.holding(target, job)
                why = f": {there.why}" if there is not None and there.why else ""
                report.requests[one] = f"{target} makes room for the job{why}"
            elif not began:
                began = self._try(one, snapshot, facts.now_s, report)
        return began

    def _try(
        self, request: Request, snapshot: ClusterSnapshot, now_s: float, report: RoundReport
    ) -> bool:
        job, target = request.subject, request.target
        approved = self._decider.by_hand(snapshot, [Move(job, target)])
        if approved.moves:
            self._moves[job] = (target, now_s)
            report.requests[request] = f"{target} makes room for the job"
            return True
        why = approved.refused[job]
        if now_s - self._asked_s[request] < REQUEST_S:
            report.requests[request] = why
        else:
            self._done(request, why, report)
        return False

    def _done(self, request: Request, what: str, report: RoundReport) -> None:
        report.done[request] = what
        self._store.done(request)

"""Jobs that start nowhere for now: something of them may still run somewhere, or be held."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dlsched.cluster.core.leases import LEASE_S, MARGIN_S, absent_for, may_run
from dlsched.cluster.core.ledger import ClusterFacts, ClusterLedger
from dlsched.cluster.core.rebuilding import holds, lost
from dlsched.cluster.core.records import Holding
from dlsched.cluster.round_report import RoundReport

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

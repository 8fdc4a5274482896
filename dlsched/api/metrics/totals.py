"""Counters since the daemon's start. The loop counts, other threads read the last total, which
never changes: the two never wait for each other."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlsched.control.cpu_account import Accountant, CpuAccount
from dlsched.model.actions import Resize
from dlsched.model.cycle import CycleReport

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histograms' buckets: a cycle of one job takes about 1 ms, a call to an engine
that hangs is given up after seconds."""


@dataclass(frozen=True)
class Histogram:
    """Durations by bucket."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    """In each bucket alone, and above the last."""
    sum_s: float = 0.0

    def with_one(self, duration_s: float) -> Histogram:
        """One more duration; a negative one counts as zero."""
        counts, at = list(self.counts), bisect_left(BOUNDS_S, duration_s)
        counts[at] += 1
        return Histogram(tuple(counts), self.sum_s + max(duration_s, 0.0))


ENGINE_CALLS = ("list", "start", "resize", "move", "remove")
"""What `engine_errors` counts: a cycle in which the engine does not answer, and failed actions."""


@dataclass(frozen=True, slots=True)
class JournalTotals:
    """State of the journal's file."""

    size_bytes: int | None = None
    """None: nothing was written yet."""
    lost_cycles: int = 0
    """Cycles since the start that could not be written."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The last complete cycle, with the counters up to its end."""

    report: CycleReport
    journal: JournalTotals
    cycles: int
    cycle_s: Histogram
    """Wall time of cycles."""
    update_s: Histogram
    """Time that the engine or kernel needed for changes of limits."""
    phase_s: Mapping[str, float]
    """CPU time of the loop by phase."""
    decisions: Mapping[str, int]
    """By policy."""
    changes: Mapping[tuple[str, str, str], int]
    """By job, kind of action and status."""
    guarded: int
    """Decisions for a job that a guard changed."""
    engine_errors: Mapping[str, int]
    """By ENGINE_CALLS."""
    owner_cpu: Mapping[int | None, CpuAccount]
    """CPU-seconds by uid of the owner (None: jobs without a file) of the jobs that are known."""


class LoopTotals:
    """Counts cycles, in the loop's thread only."""

    def __init__(self) -> None:
        self.last: Totals | None = None
        """None: no cycle is complete. May be read by any thread."""
        self._cycles = self._guarded = 0
        self._cycle_s = self._update_s = Histogram()
        self._phase_s: dict[str, float] = {}
        self._decisions: Counter[str] = Counter()
        self._changes: Counter[tuple[str, str, str]] = Counter()
        self._engine_errors = Counter(dict.fromkeys(ENGINE_CALLS, 0))
        self._accountant = Accountant()
        self._owner_cpu: dict[int | None, CpuAccount] = {}
        self._before_s: float | None = None

    def count(self, report: CycleReport, duration_s: float, journal: JournalTotals) -> None:
        """Add a cycle that took so long."""
        self._cycles += 1
        self._cycle_s = self._cycle_s.with_one(duration_s)
        for phase, seconds in report.phase_s.items():
            self._phase_s[phase] = self._phase_s.get(phase, 0.0) + seconds
        if report.decision is not None:
            self._decisions[report.policy] += 1
            self._guarded += len(report.guarded)
        if not report.engine_ok:
            self._engine_errors["list"] += 1
        if report.outcomes:
            self._count_outcomes(report)
        self._count_cpu(report)
        self.last = Totals(
            report=report,
            journal=journal,
            cycles=self._cycles,
            cycle_s=self._cycle_s,
            update_s=self._update_s,
            phase_s=dict(self._phase_s),
            decisions=dict(self._decisions),
            changes=self._changes,
            guarded=self._guarded,
            engine_errors=dict(self._engine_errors),
            owner_cpu=self._owner_cpu,
        )

    def show(self, report: CycleReport) -> None:
        """Replace the last cycle's report by one with further alarms; counts nothing."""
        if self.last is not None:
            self.last = replace(self.last, report=report)

    def _count_cpu(self, report: CycleReport) -> None:
        snapshot = report.snapshot
        before_s = snapshot.now_s if self._before_s is None else self._before_s
        seconds, self._before_s = max(snapshot.now_s - before_s, 0.0), snapshot.now_s
        # A new mapping, as other threads read the one of the cycle before.
        owners = {job.spec.owner for job in snapshot.jobs}
        found = {owner: self._owner_cpu.get(owner, CpuAccount()) for owner in owners}
        accounts = self._accountant.accounts(snapshot, report.outlooks)
        for job in snapshot.jobs:
            if (account := accounts.get(job.name)) is not None:
                found[job.spec.owner] = found[job.spec.owner].plus(account, seconds)
        self._owner_cpu = found

    def _count_outcomes(self, report: CycleReport) -> None:
        known = {job.name for job in report.snapshot.jobs}
        # A new mapping, as other threads read the one of the cycle before.
        changes = Counter({key: n for key, n in self._changes.items() if key[0] in known})
        for outcome in report.outcomes:
            kind = type(outcome.action).__name__.lower()
            if outcome.action.job in known:
                changes[outcome.action.job, kind, outcome.status] += 1
            if outcome.status == "failed":
                self._engine_errors[kind] += 1
            if isinstance(outcome.action, Resize) and outcome.status in ("done", "failed"):
                self._update_s = self._update_s.with_one(outcome.engine_s)
        self._changes = changes

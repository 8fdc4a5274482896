"""Counters since the daemon's start. The loop counts, other threads read the last total, which
never changes: the two never wait for each other."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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


ENGINE_CALLS = ("list", "start", "resize", "memory", "move", "remove")
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
    cycles: int = 0
    cycle_s: Histogram = Histogram()
    """Wall time of cycles."""
    phase_s: Mapping[str, float] = field(default_factory=dict)
    """CPU time of the loop by phase."""
    changes: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """By job, kind of action and status."""
    guarded: int = 0
    """Decisions for a job that a guard changed."""
    engine_errors: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(ENGINE_CALLS, 0))
    """By ENGINE_CALLS."""


class LoopTotals:
    """Counts cycles, in the loop's thread only."""

    def __init__(self) -> None:
        self.last: Totals | None = None
        """None: no cycle is complete. May be read by any thread."""

    def count(self, report: CycleReport, duration_s: float, journal: JournalTotals) -> None:
        """Add a cycle that took so long."""
        before = self.last or Totals(report, journal)
        known = {job.name for job in report.snapshot.jobs}
        changes = Counter({key: n for key, n in before.changes.items() if key[0] in known})
        errors = Counter(before.engine_errors)
        errors["list"] += not report.engine_ok
        for one in report.outcomes:
            kind = type(one.action).__name__.lower()
            changes[one.action.job, kind, one.status] += one.action.job in known
            errors[kind] += one.status == "failed"
        self.last = Totals(
            report=report,
            journal=journal,
            cycles=before.cycles + 1,
            cycle_s=before.cycle_s.with_one(duration_s),
            phase_s=Counter(before.phase_s) + Counter(report.phase_s),
            changes=+changes,
            guarded=before.guarded + (len(report.guarded) if report.decision else 0),
            engine_errors=errors,
        )

    def show(self, report: CycleReport) -> None:
        """Replace the last cycle's report by one with further alarms; counts nothing."""
        if self.last is not None:
            self.last = replace(self.last, report=report)

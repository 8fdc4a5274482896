"""What trainings use of the CPU that services leave them: for simulated runs and real ones alike.

It must not know policies, nor judge whether anybody met a target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dlsched.model.cycle import CycleReport
from dlsched.model.spec import AccuracyTarget


class Left:
    """Adds up core-seconds left for trainings, and used by them, cycle by cycle."""

    def __init__(self, threads: Mapping[str, float]) -> None:
        """`threads`: how many cores each training can use at once."""
        self._threads = threads
        self._before_s: float | None = None
        self._there: set[str] = set()
        self.used_core_s = 0.0
        self.left_core_s = 0.0

    def add(self, report: CycleReport) -> None:
        """The next cycle: its usage is that of the time since the one before."""
        seen, node = report.snapshot, report.snapshot.node
        there = {
            job.name
            for job in seen.running
            if isinstance(job.spec.target, AccuracyTarget) and job.usage.cpu_cores is not None
        }
        if self._before_s is not None:
            # Who came within the cycle did not want CPU for all of it.
            wanting = there & self._there
            uses = {job.name: job.usage.cpu_cores or 0.0 for job in seen.running}
            others = math.fsum(cores for name, cores in uses.items() if name not in wanting)
            # What the operator keeps back is there for others on the host to use.
            there_is = min(node.capacity_cores, node.cores - (node.foreign_cores or 0.0))
            wanted = math.fsum(self._threads[name] for name in wanting)
            elapsed_s = seen.now_s - self._before_s
            self.left_core_s += max(0.0, min(there_is - others, wanted)) * elapsed_s
            self.used_core_s += math.fsum(uses[name] for name in wanting) * elapsed_s
        self._before_s, self._there = seen.now_s, there

    @property
    def ratio(self) -> float:
        """Used of left; 1 where nothing was left to use."""
        return self.used_core_s / self.left_core_s if self.left_core_s > 0 else 1.0


def left_of(reports: Iterable[CycleReport], threads: Mapping[str, float], since_s: float) -> Left:
    """The whole of a run from so many seconds after its first cycle on."""
    left, began_s = Left(threads), None
    for report in reports:
        began_s = report.snapshot.now_s if began_s is None else began_s
        if report.snapshot.now_s >= began_s + since_s:
            left.add(report)
    return left

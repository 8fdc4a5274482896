"""How many decisions it takes until limits stay: the same for real runs and simulated ones.

It must not know policies, nor whether what they settled on is good.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from dlsched.model import CycleReport

MOVED_RATIO = 0.10
"""A limit that changes by more than that, as a ratio of what it was, has not settled."""


class Settling:
    """Counts decisions as cycles come in: a stretch begins with each arrival or exit."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._before: dict[str, float | None] = {}
        self._decisions = self._last = 0

    def add(self, report: CycleReport) -> None:
        """The next cycle."""
        if report.decision is None:
            return
        limits = {
            job.name: report.limits[job.name].cpu_cores
            for job in report.snapshot.running
            if job.name in report.limits
        }
        if not limits:
            return
        if report.snapshot.wakes and self._decisions:
            self._counts.append(self._last)
            self._decisions = self._last = 0
        self._decisions += 1
        if any(_moved(self._before.get(name), now) for name, now in limits.items()):
            self._last = self._decisions
        self._before = limits

    @property
    def steps(self) -> float:
        """Decisions up to the last that moved a running job's limit, mean over the stretches.

        0 for a policy that changes nothing.
        """
        return statistics.fmean([*self._counts, self._last])


def settling_steps(reports: Iterable[CycleReport]) -> float:
    """`Settling.steps` of a whole run."""
    settling = Settling()
    for report in reports:
        settling.add(report)
    return settling.steps


def _moved(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is not now
    return abs(now - before) > MOVED_RATIO * before

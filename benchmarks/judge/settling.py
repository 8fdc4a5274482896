"""How many decisions it takes until limits stay: the same for real runs and simulated ones.

It must not know policies, nor whether what they settled on is good.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from dlsched.model.cycle import CycleReport

BAND_RATIO = 0.10
"""A limit further than that from where it ends, as a ratio of it, has not settled yet."""


class Settling:
    """Counts decisions as cycles come in: a stretch begins with each arrival or exit."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._decisions = 0
        # Decisions of this stretch that changed something, and what held before the first.
        self._course: list[tuple[int, Mapping[str, float | None]]] = [(0, {})]

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
            self._counts.append(_settled_at(self._course))
            self._decisions, self._course = 0, [(0, self._course[-1][1])]
        self._decisions += 1
        if limits != self._course[-1][1]:
            self._course.append((self._decisions, limits))

    @property
    def steps(self) -> float:
        """Decisions until every running job's limit stays where it ends, mean over the stretches.

        By where it ends and not by single steps: many small ones lead far. 0 for a policy that
        changes nothing.
        """
        return statistics.fmean([*self._counts, _settled_at(self._course)])


def settling_steps(reports: Iterable[CycleReport]) -> float:
    """`Settling.steps` of a whole run."""
    settling = Settling()
    for report in reports:
        settling.add(report)
    return settling.steps


def _settled_at(course: list[tuple[int, Mapping[str, float | None]]]) -> int:
    """The decision from which on every limit was within the band around its last."""
    settled, end = course[-1]
    for decision, limits in reversed(course):
        if any(_off(limits.get(name), cores) for name, cores in end.items()):
            break
        settled = decision
    return settled


def _off(cores: float | None, end: float | None) -> bool:
    if cores is None or end is None:
        return cores is not end
    return abs(cores - end) > BAND_RATIO * end

"""Judging satisfaction from what was measured: pure, and the same for every policy.

A mean over too few requests measures noise. For a mean latency to be known within the band with
about 90 % certainty, a job with coefficient of variation cv needs (1.645 cv / band)^2 requests:
11 at cv 0.2, 68 at 0.5, 271 at 1 for a band of 10 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlsched.estimate.sketch import cv, merge
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import BAND_RATIO

_Z = 1.645

Series = Sequence[tuple[float, LatencySketch]]
"""(seconds since the policy took over, what arrived in that second)."""


@dataclass(frozen=True)
class Judged:
    """One job under one policy: its mean latency over the judged window."""

    job: str
    target_s: float
    mean_s: float | None
    requests: int
    needed: int

    @property
    def ratio(self) -> float | None:
        return None if self.mean_s is None else self.mean_s / self.target_s

    @property
    def enough(self) -> bool:
        return self.requests >= self.needed

    @property
    def band(self) -> bool:
        """Two-sided: within 10 % of the target."""
        return self.ratio is not None and abs(self.ratio - 1) <= BAND_RATIO

    @property
    def slo(self) -> bool:
        """One-sided: not slower than the target."""
        return self.ratio is not None and self.ratio <= 1


def arrived(reports: Iterable[CycleReport]) -> dict[str, list[tuple[float, LatencySketch]]]:
    """What arrived, job by job, with seconds since the first of these cycles."""
    series: dict[str, list[tuple[float, LatencySketch]]] = {}
    began_s: float | None = None
    for report in reports:
        began_s = report.snapshot.now_s if began_s is None else began_s
        for job in report.snapshot.jobs:
            at_s = report.snapshot.now_s - began_s
            series.setdefault(job.name, []).append((at_s, job.progress.fresh))
    return series


def requests_needed(variation: float) -> int:
    """Requests for a mean known within the band (90 % two-sided); never fewer than 11."""
    return max(11, math.ceil((_Z * variation / BAND_RATIO) ** 2))


def judge(job: str, target_s: float, series: Series, since_s: float) -> Judged:
    """The job over everything that arrived from `since_s` on."""
    total = merge(*(sketch for at_s, sketch in series if at_s >= since_s))
    needed = requests_needed(cv(total) or 0.0)
    return Judged(job, target_s, total.mean_s, total.count, needed)


def satisfied(judged: Iterable[Judged]) -> tuple[int, int]:
    """How many are within the band, and how many are not slower than their target."""
    jobs = list(judged)
    return sum(job.band for job in jobs), sum(job.slo for job in jobs)

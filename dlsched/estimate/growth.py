"""Growth of a training's metric between two windows, and growth per CPU used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.estimate.evaluations import evaluations
from dlsched.model.state import JobView

Point = tuple[float, float]
"""Time of receipt in seconds, and the value."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Mean of a metric over the last window and the one before."""

    last: float
    before: float


def points(job: JobView, metric: str) -> tuple[Point, ...]:
    """Values of that metric in the job's present attempt, oldest first. A new attempt begins when
    the container starts, or when the step decreases."""
    found: list[Point] = []
    latest_step: int | None = None
    for sample in job.progress.samples:
        if job.started_at_s is not None and sample.received_s < job.started_at_s:
            continue
        if sample.step is not None:
            if latest_step is not None and sample.step < latest_step:
                found.clear()
            latest_step = sample.step
        found.extend((sample.received_s, value) for value in evaluations(sample, metric))
    return tuple(found)


def levels(given: Sequence[Point], now_s: float, window_s: float) -> Levels | None:
    """The means over the window that ends now and the one before; None, not 0, if one is empty."""
    last = [value for at_s, value in given if now_s - window_s < at_s <= now_s]
    before = [value for at_s, value in given if now_s - 2 * window_s < at_s <= now_s - window_s]
    if not last or not before:
        return None
    return Levels(math.fsum(last) / len(last), math.fsum(before) / len(before))


def usage_ratio(job: JobView, capacity_cores: float) -> float | None:
    """Fraction of the node that the job uses, since its last change of limits; None: unread."""
    used = job.usage.cpu_cores if job.usage.window_cores is None else job.usage.window_cores
    return None if used is None else used / capacity_cores


def efficiency(progress_per_s: float, used_ratio: float) -> float:
    """Progress a second per fraction of the node used; 0 for a job that uses almost nothing."""
    return progress_per_s / used_ratio if used_ratio > 1e-6 else 0.0

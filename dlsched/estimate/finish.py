"""When a job may be done, from its pace towards its target's `finish`, or from its deadline.

Owns the reading of that pace. It must not claim more than it can know: learning curves flatten, so
what the present pace gives is the earliest moment; who tells nothing gets no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.estimate.growth import Point, points
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.state import JobView

_LAST_POINTS = 16
"""Only the latest show the present pace."""
_LEAST_POINTS = 3
_LATEST_S = 30 * 86_400.0
"""A pace that would take longer than that is none."""


@dataclass(frozen=True, slots=True)
class FinishForecast:
    """In how many seconds a job may be done, and what tells so, or why nothing does."""

    in_s: float | None
    """At the earliest, from now on; None: nothing tells."""
    why: str


def finish_forecast(job: JobView, now_s: float) -> FinishForecast:
    """When that job may be done, at the earliest."""
    if isinstance(job.spec.target, LatencyTarget):
        return FinishForecast(None, f"{job.name} serves until it is stopped")
    if not isinstance(job.spec.target, AccuracyTarget):
        return FinishForecast(None, f"{job.name} has no target")
    target = job.spec.target
    goal = f"{target.metric} {target.finish:g}"
    if job.tiers.finished is not None:
        return FinishForecast(0.0, f"{job.name} has reached {goal}")
    given = points(job, target.metric)
    in_s = time_to(given, target.finish, now_s, falls=target.finish < target.deliver)
    if in_s is not None:
        return FinishForecast(in_s, f"{job.name} reaches {goal} at its present pace")
    if target.deadline_s is not None and job.started_at_s is not None:
        left_s = job.started_at_s + target.deadline_s - now_s
        if left_s > 0:
            return FinishForecast(left_s, f"{job.name} has its deadline")
    known = "does not come nearer to" if len(given) >= _LEAST_POINTS else "tells too little of"
    return FinishForecast(None, f"{job.name} {known} {goal}")


def time_to(given: Sequence[Point], value: float, now_s: float, *, falls: bool) -> float | None:
    """Seconds from now until the value at the pace of the latest points; None without a pace.

    The pace is the slope of the straight line nearest to them by least squares: one evaluation more
    or less lucky moves it little. `falls`: lower is better.
    """
    last = given[-_LAST_POINTS:]
    if len(last) < _LEAST_POINTS:
        return None
    sign = -1.0 if falls else 1.0
    mean_s = math.fsum(at_s for at_s, _ in last) / len(last)
    level = math.fsum(sign * each for _, each in last) / len(last)
    spread = math.fsum((at_s - mean_s) ** 2 for at_s, _ in last)
    if spread <= 0:
        return None
    slope = math.fsum((at_s - mean_s) * (sign * each - level) for at_s, each in last) / spread
    if slope <= 0:
        return None
    in_s = mean_s + (sign * value - level) / slope - now_s
    return max(0.0, in_s) if in_s <= _LATEST_S else None

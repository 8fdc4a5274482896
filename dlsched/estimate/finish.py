"""Forecast of when a job is finished: by its policy, or by its present pace towards `finish`.

Learning curves flatten, so the pace gives the earliest time. Without reports there is no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dlsched.estimate.growth import Point, points
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView

_LAST_POINTS = 16
"""Number of latest points that the present pace is fitted to."""
_LEAST_POINTS = 3
_LATEST_S = 30 * 86_400.0
"""A pace that would take longer counts as no pace."""


def finish_forecast(job: JobView, now_s: float, expected: Sequence[Forecast] = ()) -> Forecast:
    """The earliest time at which the job may be finished; `expected`: its policy's forecasts."""
    target = job.spec.target
    if isinstance(target, LatencyTarget):
        return unknown(f"{job.name} serves until it is stopped")
    if target is None:
        return unknown(f"{job.name} has no target")
    goal = f"{target.metric} {target.finish:g}"
    if job.tiers.finished is not None:
        at_s = job.tiers.finished.at_s
        return Forecast(ForecastKind.MET, "finish", at_s, why=f"{job.name} has reached {goal}")
    for one in expected:
        if one.tier == "finish" and one.kind is ForecastKind.EXPECTED and one.at_s is not None:
            return replace(one, why=f"{job.name} is expected to reach {goal}")
    given = points(job, target.metric)
    in_s = time_to(given, target.finish, now_s, falls=target.finish < target.deliver)
    if in_s is not None:
        return _at(now_s + in_s, f"{job.name} reaches {goal} if it learns on at its present pace")
    if target.deadline_s is not None and job.started_at_s is not None:
        due_s = job.started_at_s + target.deadline_s
        if due_s > now_s:
            return _at(due_s, f"{job.name} is expected to run until its deadline")
    if len(given) < _LEAST_POINTS:
        return unknown(f"{job.name} has reported too few values to say when it reaches {goal}")
    return unknown(f"{job.name} does not come nearer to {goal}")


def _at(at_s: float, why: str) -> Forecast:
    return Forecast(ForecastKind.EXPECTED, "finish", at_s, why=why)


def unknown(why: str) -> Forecast:
    """No estimate, for that reason."""
    return Forecast(ForecastKind.UNKNOWN, "finish", why=why)


def time_to(given: Sequence[Point], value: float, now_s: float, *, falls: bool) -> float | None:
    """Seconds until the value is reached at the present pace; None without one. The pace is the
    slope by least squares, which one outlier moves little. `falls`: lower is better."""
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

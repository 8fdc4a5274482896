"""Where one job stands between its two tiers, for the policy `tradl`.

Owns when a job counts as unable to get to its first tier. Whether it is there is the job's own
fact (`JobView.tiers`). It must not divide CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from dlsched.estimate.growth import Levels, efficiency, levels, points, usage_ratio
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView, Snapshot, Tiers
from dlsched.policies.published.tradl.parameters import TradlParameters

_NEAREST = 0.01
"""Part of the way at which a job counts as next to its tier: time to it must not be zero."""


class TradlClass(StrEnum):
    """How a job stands to its target."""

    UNDER = "U"
    DELIVERABLE = "D"
    FINISHED = "F"


@dataclass(frozen=True, slots=True)
class TradlJob:
    """What is remembered of one job in one container, for one target."""

    name: str
    container_id: str | None
    metric: str
    deliver: float
    finish: float
    delivered: bool = False
    """Whether it had reached its first tier at the last decision."""
    missing: float | None = None
    """What was missing to the first tier at its last step, in the metric's unit."""
    largest: float = 0.0
    """The most that was ever missing, in the metric's unit."""
    tried_s: float = 0.0
    """Time below the first tier: seconds at an equal share on offer, less of it counts pro rata."""
    stepped_s: float = 0.0
    """`tried_s` at its last step."""


def known_job(job: JobView, target: AccuracyTarget, before: tuple[TradlJob, ...]) -> TradlJob:
    """What is remembered; nothing after a new container or another target."""
    fresh = TradlJob(job.name, job.container_id, target.metric, target.deliver, target.finish)
    return next((one for one in before if _identity(one) == _identity(fresh)), fresh)


def updated(job: JobView, known: TradlJob, offered_s: float, rule: TradlParameters) -> TradlJob:
    """What its evaluations tell beside what is known, after so long with CPU on offer."""
    lack = [missing(known, value) for _, value in points(job, known.metric)]
    known = replace(known, delivered=job.tiers.delivered is not None)
    if not known.delivered:
        known = replace(known, tried_s=known.tried_s + offered_s)
    if not lack:
        return known
    least = min(lack)
    known = replace(known, largest=max(known.largest, *lack))
    last = known.missing
    if last is None or (last > 0 and least <= (1 - rule.step_ratio) * last):
        known = replace(known, missing=least, stepped_s=known.tried_s)
    return known


def missing(job: TradlJob, value: float) -> float:
    """How far this value is from the first tier, in the metric's unit; below 0: beyond it."""
    return value - job.deliver if job.finish < job.deliver else job.deliver - value


def _identity(job: TradlJob) -> tuple[str, str | None, str, float, float]:
    return job.name, job.container_id, job.metric, job.deliver, job.finish


def gave_up(job: TradlJob, rule: TradlParameters) -> bool:
    """Whether it has gone without a step for longer than the patience, and than all its steps took.

    Whatever it may be (stuck, hung, silent), a job that does not get nearer must not hold priority
    for ever. The next step brings it back.
    """
    return job.tried_s - job.stepped_s > max(rule.patience_s, job.stepped_s)


def standing(tiers: Tiers, job: TradlJob, rule: TradlParameters) -> TradlClass:
    """Its class: below its first tier, between its tiers, or past the second or without a hope."""
    if tiers.finished is not None:
        return TradlClass.FINISHED
    if tiers.delivered is not None:
        return TradlClass.DELIVERABLE
    return TradlClass.FINISHED if gave_up(job, rule) else TradlClass.UNDER


def pull(job: JobView, known: TradlJob, snapshot: Snapshot, rule: TradlParameters) -> float | None:
    """Its claim among the jobs below their tiers, by the rule chosen; None: not measured yet.

    Progress is what became less of the way to the first tier, as a ratio of the most that was ever
    missing, so that metrics of any unit compare. Going backwards is no progress.
    """
    lack = [(at_s, missing(known, value)) for at_s, value in points(job, known.metric)]
    means: Levels | None = levels(lack, snapshot.now_s, rule.window_s)
    if means is None or known.largest <= 0:
        return None
    way = means.last / known.largest
    progress_per_s = max(means.before - means.last, 0.0) / known.largest / rule.window_s
    if rule.weights == "closest":
        return progress_per_s / max(way, _NEAREST)
    used = usage_ratio(job, snapshot.node.capacity_cores)
    return None if used is None else efficiency(progress_per_s, used)


def relative(pulls: dict[str, float | None]) -> dict[str, float]:
    """Pulls as weights with a mean of about 1; a job not measured yet weighs as much as the mean.

    Where nothing can be told apart all weigh the same.
    """
    measured = [one for one in pulls.values() if one is not None]
    mean = math.fsum(measured) / len(measured) if measured else 0.0
    if mean <= 0:
        return dict.fromkeys(pulls, 1.0)
    return {name: 1.0 if one is None else max(one / mean, 1e-6) for name, one in pulls.items()}

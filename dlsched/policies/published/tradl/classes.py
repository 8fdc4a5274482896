"""The class of a job by its two tiers, and the give-up rule, for the policy `tradl`.

Whether a tier is reached is a fact of the job (`JobView.tiers`), not decided here.
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
"""Least remaining fraction of the way to the tier, so that the time to it is never zero."""


class TradlClass(StrEnum):
    UNDER = "U"
    DELIVERABLE = "D"
    FINISHED = "F"


@dataclass(frozen=True, slots=True)
class TradlJob:
    """What the policy remembers of one job in one container, for one target."""

    name: str
    container_id: str | None
    metric: str
    deliver: float
    finish: float
    delivered: bool = False
    missing: float | None = None
    """Distance to the first tier at its last step, in the metric's unit; `largest` so far."""
    largest: float = 0.0
    tried_s: float = 0.0
    """Seconds below the first tier with an equal share offered (less counts pro rata);
    `stepped_s` of them until its last step."""
    stepped_s: float = 0.0


def known_job(job: JobView, target: AccuracyTarget, before: tuple[TradlJob, ...]) -> TradlJob:
    """The memory of the job; a fresh one after a new container or another target."""
    fresh = TradlJob(job.name, job.container_id, target.metric, target.deliver, target.finish)
    return next((one for one in before if _identity(one) == _identity(fresh)), fresh)


def updated(job: JobView, known: TradlJob, offered_s: float, rule: TradlParameters) -> TradlJob:
    """The memory after this decision's evaluations, `offered_s` after the last one."""
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
    """Distance of this value to the first tier, in the metric's unit; below 0: past it."""
    return value - job.deliver if job.finish < job.deliver else job.deliver - value


def _identity(job: TradlJob) -> tuple[str, str | None, str, float, float]:
    return job.name, job.container_id, job.metric, job.deliver, job.finish


def gave_up(job: TradlJob, rule: TradlParameters) -> bool:
    """Whether it made no step for longer than the patience, and than all its steps so far took. A
    job that is stuck, hung or silent must not hold priority for ever. The next step ends this."""
    return job.tried_s - job.stepped_s > max(rule.patience_s, job.stepped_s)


def class_of(tiers: Tiers, job: TradlJob, rule: TradlParameters) -> TradlClass:
    """The class: U below the first tier, D between the tiers, F past the second or given up."""
    if tiers.finished is not None:
        return TradlClass.FINISHED
    if tiers.delivered is not None:
        return TradlClass.DELIVERABLE
    return TradlClass.FINISHED if gave_up(job, rule) else TradlClass.UNDER


def pull(job: JobView, known: TradlJob, snapshot: Snapshot, rule: TradlParameters) -> float | None:
    """The job's claim among those below their tiers, by `weights`; None: not measured yet.

    Progress is the decrease of the distance to the first tier, as a ratio of the largest distance
    so far, so that metrics of any unit can be compared. An increase counts as 0.
    """
    lack = [(at_s, missing(known, value)) for at_s, value in points(job, known.metric)]
    means: Levels | None = levels(lack, snapshot.now_s, rule.window_s)
    if means is None or known.largest <= 0:
        return None
    distance = means.last / known.largest
    progress_per_s = max(means.before - means.last, 0.0) / known.largest / rule.window_s
    if rule.weights == "closest":
        return progress_per_s / max(distance, _NEAREST)
    used = usage_ratio(job, snapshot.node.capacity_cores)
    return None if used is None else efficiency(progress_per_s, used)


def relative(pulls: dict[str, float | None]) -> dict[str, float]:
    """Claims as weights with a mean of about 1, also for jobs not measured yet. All weigh the same
    where no job makes progress."""
    measured = [one for one in pulls.values() if one is not None]
    mean = math.fsum(measured) / len(measured) if measured else 0.0
    if mean <= 0:
        return dict.fromkeys(pulls, 1.0)
    return {name: 1.0 if one is None else max(one / mean, 1e-6) for name, one in pulls.items()}

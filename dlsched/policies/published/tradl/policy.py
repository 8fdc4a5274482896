"""The policy `tradl`: trainings are brought to their first, deliverable tier first.

Whether a tier is reached is a fact of the job (`JobView.tiers`), not decided here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from dlsched.estimate.growth import Levels, efficiency, levels, points, usage_ratio
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import JobView, Snapshot, Tiers
from dlsched.policies.fair_share import Claim, claim, fair_shares, water_fill
from dlsched.policies.ranges import (
    at_least,
    between_zero_and_one,
    one_of,
    ratios_above_zero,
)


@dataclass(frozen=True, slots=True)
class TradlParameters:
    """The published constants, and choices that the paper leaves open."""

    weights: str = "growth"
    """Weight of a job that has not reached `deliver`: its growth efficiency (`growth`), or one over
    the time to `deliver` at the present pace (`closest`)."""
    settled_ratio: float = 1.0
    """CPU limit of a job past its `deliver` value, as a ratio of N/(n+1), for n trainings on N
    cores. A lower one brings the others to `deliver` sooner, and this job to `finish` later. With
    1, the last of n trainings takes at most (n-1)/2n less time to `deliver` than with equal shares.
    """
    interval_s: float = 10.0
    """Seconds between decisions while a job has not reached `deliver`: it is noticed so much later
    at most."""
    window_s: float = 30.0
    """Length in seconds of each of the two successive windows whose mean losses give a job's
    growth: FlowCon's interval."""
    least_ratio: float = 0.1
    """Lowest limit of a job that has not reached `deliver`, as a ratio of an equal share: a job
    without CPU cannot report, so its growth could never be measured again."""
    headroom_ratio: float = 1.25
    """A job that leaves its limit unused gets at most this factor times its use, and others get the
    rest: a training cannot use more cores than it has threads."""
    patience_s: float = 300.0
    """Give-up rule: seconds without a step towards `deliver` after which `deliver` counts as out of
    reach, at an equal share of CPU; with less CPU proportionally more seconds."""
    step_ratio: float = 0.05
    """Give-up rule: a step is made once the distance to `deliver` is smaller by this fraction than
    at the step before."""
    backoff: int = 8
    """Largest factor on `interval_s` once all jobs have reached `deliver`, so that decisions are
    rarer."""

    def __post_init__(self) -> None:
        one_of(("growth", "closest"), self, "weights")
        at_least(1, self, "interval_s", "window_s", "patience_s", "backoff")
        between_zero_and_one(self, "least_ratio", "step_ratio")
        ratios_above_zero(self, "settled_ratio")
        at_least(1.2, self, "headroom_ratio")


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


_BINDING_RATIO = 0.9
"""Fraction of its limit in use from which a job could use more."""


@dataclass(frozen=True, slots=True)
class TradlMemory:
    jobs: tuple[TradlJob, ...]
    interval_s: float
    decided_at_s: float


class TradlPolicy:
    """Jobs below their first tier share nearly all CPU, the others continue at a small limit.

    TRADL (doi 10.1109/HPEC.2019.8916403), reconstructed: two tiers, `deliver` and `finish`, are
    the paper's; the rules are this project's reading. N is the capacity less the fair shares of
    jobs without such a target, n the number of jobs with one.

    - U, below the first tier: these share what D and F leave, by growth efficiency (`growth`) or by
      one over the time to the tier at the present pace (`closest`), times the job's weight. A job
      not measured yet has the mean weight: it is never considered converged.
    - D, between the tiers, and F, past the second or unable to reach the first: N/(n+1), or
      `settled_ratio` of it, and what U cannot use (`headroom_ratio`).
    - A tier is reached after a number of evaluations in a row (the setting `tier_evaluations`), and
      stays reached. Lower is better for a metric whose `finish` is below its `deliver`.
    - Give-up rule: a job in U without a step towards its first tier for `patience_s`, and for
      longer than all its steps so far took, is in F until its next step. That time counts in
      proportion to the CPU offered, so a job may wait for others, but not hang.
    - U empty: all limits are lifted, and the interval doubles, at most `backoff` times its base.

    Jobs with a latency target or none keep their fair share while others are limited.

    Known weaknesses: a job that starts slowly waits at `least_ratio` of an equal share; noise in
    few evaluations moves limits; D and F are held back although they may be nearly finished, so
    time to the second tier and mean completion time grow.
    """

    Parameters: ClassVar[type[TradlParameters]] = TradlParameters
    Memory: ClassVar[type[TradlMemory]] = TradlMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, parameters: TradlParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """Classifies every job by its evaluations, then divides the CPU."""
        rule = self.parameters
        before = memory if isinstance(memory, TradlMemory) else None
        jobs = sorted(snapshot.running, key=lambda job: job.name)
        targets = {
            job.name: job.spec.target for job in jobs if isinstance(job.spec.target, AccuracyTarget)
        }
        aimed = [job for job in jobs if job.name in targets]
        shares = fair_shares(jobs, snapshot.node.capacity_cores)
        pool = math.fsum(shares[job.name] for job in aimed)

        known: dict[str, TradlJob] = {}
        first: set[str] = set()
        for job in aimed:
            was = known_job(job, targets[job.name], before.jobs if before else ())
            offered_s = _offered_s(job, snapshot, before, pool / len(aimed))
            known[job.name] = now = updated(job, was, offered_s, rule)
            if now.delivered and not was.delivered:
                first.add(job.name)
        classes = {job.name: class_of(job.tiers, known[job.name], rule) for job in aimed}
        under = [job for job in aimed if classes[job.name] is TradlClass.UNDER]
        settled = [job for job in aimed if classes[job.name] is not TradlClass.UNDER]
        lift = bool(aimed) and not under

        weights = relative({job.name: pull(job, known[job.name], snapshot, rule) for job in under})
        limits: dict[str, float | None] = {**shares}
        if lift:
            limits = dict.fromkeys(shares)
        else:
            limits |= self._divide(under, settled, weights, pool)

        interval_s = rule.interval_s
        if before is not None and lift and not snapshot.wakes:
            interval_s = min(2 * before.interval_s, rule.backoff * rule.interval_s)
        resting = {job.name for job in snapshot.jobs if not job.runs}
        kept = [one for one in (before.jobs if before else ()) if one.name in resting]
        return Decision(
            limits={name: Limits(cores) for name, cores in limits.items()},
            why={
                job.name: _class_text(
                    job,
                    known.get(job.name),
                    weights.get(job.name),
                    snapshot.now_s,
                    first=job.name in first,
                )
                + ("no ceiling" if one is None else snapshot.resource.amount(one))
                for job, one in ((job, limits[job.name]) for job in jobs)
            },
            memory=TradlMemory((*known.values(), *kept), interval_s, snapshot.now_s),
            next_s=interval_s,
        )

    def _divide(
        self,
        under: Sequence[JobView],
        settled: Sequence[JobView],
        weights: Mapping[str, float],
        pool: float,
    ) -> dict[str, float]:
        """D and F get their small limit, U the rest by weight, D and F also what U cannot use."""
        rule, count = self.parameters, len(under) + len(settled)
        bounds = {job.name: claim(job, pool) for job in (*under, *settled)}
        limits = {
            job.name: min(
                max(rule.settled_ratio * pool / (count + 1), bounds[job.name].floor_cores),
                bounds[job.name].ceiling_cores,
            )
            for job in settled
        }
        claims = {}
        for job in under:
            one = bounds[job.name]
            least = min(max(rule.least_ratio * pool / count, one.floor_cores), one.ceiling_cores)
            most = max(min(one.ceiling_cores, self._usable(job)), least)
            claims[job.name] = Claim(one.weight * weights[job.name], least, most)
        held = math.fsum(limits.values())
        limits |= water_fill(pool - held, claims)
        left = pool - math.fsum(limits.values())
        for_settled = {
            job.name: Claim(
                bounds[job.name].weight, limits[job.name], bounds[job.name].ceiling_cores
            )
            for job in settled
        }
        return limits | water_fill(held + left, for_settled)

    def _usable(self, job: JobView) -> float:
        """Cores that this job can use; infinite unless it leaves its limit unused."""
        limit, used = job.actual.cpu_cores, job.usage.window_cores
        if limit is None or used is None or used >= _BINDING_RATIO * limit:
            return math.inf
        return self.parameters.headroom_ratio * used


def _class_text(
    job: JobView, known: TradlJob | None, weight: float | None, now_s: float, *, first: bool
) -> str:
    """The beginning of the reason: the job's class and its progress."""
    if known is None:
        return "no accuracy target, fair share: "
    tiers, tier = job.tiers, f"{known.metric} {known.deliver:g}"
    if first and tiers.delivered is not None:
        return f"deliverable: {tier} reached with {tiers.delivered.value:.4g}: "
    if tiers.finished is not None:
        return f"class F: finished, {known.metric} {known.finish:g} reached: "
    if tiers.delivered is not None:
        since_s = now_s - tiers.delivered.at_s
        return (
            f"class D: reached its deliver value {since_s:.0f} s ago, now on the way to "
            f"{known.metric} {known.finish:g}: "
        )
    if weight is None:
        stuck_s = known.tried_s - known.stepped_s
        return f"class F: given up, no step towards {tier} in {stuck_s:.0f} s: "
    if known.missing is None:
        return f"class U: no evaluation yet on the way to {tier}: "
    return f"class U: {known.missing:.3g} short of {tier} at its last step, weight {weight:.3f}: "


def _offered_s(
    job: JobView, snapshot: Snapshot, before: TradlMemory | None, equal_cores: float
) -> float:
    """Seconds since the last decision, pro rata where less than an equal share was offered."""
    if before is None or all(one.name != job.name for one in before.jobs):
        return 0.0
    passed_s = max(snapshot.now_s - before.decided_at_s, 0.0)
    limit = job.actual.cpu_cores
    return passed_s if limit is None or limit >= equal_cores else passed_s * limit / equal_cores

"""The policy `tradl`: trainings are brought to their first, deliverable tier first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.fair_share import Claim, claim, fair_shares, water_fill
from dlsched.policies.published.tradl.classes import (
    TradlClass,
    TradlJob,
    class_of,
    known_job,
    pull,
    relative,
    updated,
)
from dlsched.policies.published.tradl.parameters import TradlParameters

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
    reserves: ClassVar[bool] = False

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
        return f"F, {known.metric} {known.finish:g} reached: "
    if tiers.delivered is not None:
        since_s = now_s - tiers.delivered.at_s
        return f"D, deliverable for {since_s:.0f} s, on to {known.metric} {known.finish:g}: "
    if weight is None:
        stuck_s = known.tried_s - known.stepped_s
        return f"F, given up: no step towards {tier} in {stuck_s:.0f} s: "
    if known.missing is None:
        return f"U, no evaluation yet on the way to {tier}: "
    return f"U, {known.missing:.3g} missing to {tier} at its last step, weight {weight:.3f}: "


def _offered_s(
    job: JobView, snapshot: Snapshot, before: TradlMemory | None, equal_cores: float
) -> float:
    """Seconds since the last decision, pro rata where less than an equal share was offered."""
    if before is None or all(one.name != job.name for one in before.jobs):
        return 0.0
    passed_s = max(snapshot.now_s - before.decided_at_s, 0.0)
    limit = job.actual.cpu_cores
    return passed_s if limit is None or limit >= equal_cores else passed_s * limit / equal_cores

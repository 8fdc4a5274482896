"""The policy `dqoes-published`: the rule as published, weaknesses included.

It is a baseline: it must not be improved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from dlsched.estimate.sketch import against_target_s
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import LatencyTarget, Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.fair_share import claim, fair_shares
from dlsched.policies.ranges import (
    above_zero,
    at_least,
    between_zero_and_one,
    one_of,
    ratios_above_zero,
)


class QoeClass(StrEnum):
    """A job's class: faster than its band (G), within it (S), slower (B)."""

    BETTER = "G"
    SATISFIED = "S"
    WORSE = "B"


@dataclass(frozen=True, slots=True)
class DqoesPublishedParameters:
    """The published constants, and two choices that the paper leaves open."""

    alpha: float = 0.10
    """Half width of the satisfied band, as a ratio of the target: the paper's 10 %."""
    beta: float = 0.10
    """Largest change in one step, as a ratio of usage or limit: the paper's 10 %."""
    reading: str = "own"
    """By what a job grows that is slower than its band: a fraction of its own limit (`own`), or of
    the usage of all jobs that are faster than theirs (`pool`)."""
    floor_ratio: float = 0.5
    """Lowest limit as a ratio of an equal share N/n: 0.5 is the paper's N/(2n); this project also
    compares 0.05."""
    interval_s: float = 2.0
    """Seconds between decisions after a change for the worse, an arrival or an exit. The paper
    gives none; the default is that of the policy `dqoes`, so that both get as many steps."""
    backoff: int = 8
    """Largest factor on `interval_s` while no job gets worse, so that decisions are rarer; 1: the
    interval stays."""

    def __post_init__(self) -> None:
        between_zero_and_one(self, "alpha", "beta")
        one_of(("own", "pool"), self, "reading")
        ratios_above_zero(self, "floor_ratio")
        above_zero(self, "interval_s")
        at_least(1, self, "backoff")


@dataclass(frozen=True, slots=True)
class DqoesPublishedMemory:
    limits: tuple[tuple[str, float], ...]
    """L of every job, in cores: kept here, since steps smaller than the dead band must add up."""
    interval_s: float
    missed_s: float
    """Sum of |q| over G and B at that decision; "worse" means that it grew."""


class DqoesPublishedPolicy:
    """Jobs faster than their target give CPU, slower jobs take it, a tenth at a time.

    DQoES (arXiv 2010.12728), reconstructed: the structure is recalled, the factors are this
    project's reading. With target o and measured latency p, q = o - p in seconds: class G where
    q > alpha o, B where q < -alpha o, else S. G: L = R (1 - beta q/Q_G), R its usage.
    B: L = L (1 + beta q/Q_B) (`own`), or L + beta R_G q/Q_B (`pool`). S: unchanged. Then L is
    limited to [floor, N]. Q_G and Q_B are the sums of q over G and B.

    Our choices, where the paper is silent: L starts at N/n; p is measured since the last change of
    the limit, or over the last window while nothing has finished since; a job without any request
    counts as S; one without a latency target keeps its fair share.
    """

    Parameters: ClassVar[type[DqoesPublishedParameters]] = DqoesPublishedParameters
    Memory: ClassVar[type[DqoesPublishedMemory]] = DqoesPublishedMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits(holds_at_target=True)

    def __init__(self, parameters: DqoesPublishedParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """One step of the rule, and the paper's adaptive interval (its "adaptive listener")."""
        rule = self.parameters
        jobs = sorted(snapshot.running, key=lambda job: job.name)
        capacity = snapshot.node.capacity_cores
        before = memory if isinstance(memory, DqoesPublishedMemory) else None
        equal = capacity / max(len(jobs), 1)
        limits = {job.name: equal for job in jobs} | dict(before.limits if before else ())
        used = {
            job.name: limits[job.name] if job.usage.window_cores is None else job.usage.window_cores
            for job in jobs
        }
        q = {job.name: _q(job) for job in jobs}
        classes = {
            job.name: qoe_class(job.spec.target.seconds, q[job.name], rule.alpha)
            for job in jobs
            if isinstance(job.spec.target, LatencyTarget)
        }
        better = [name for name, one in classes.items() if one is QoeClass.BETTER]
        worse = [name for name, one in classes.items() if one is QoeClass.WORSE]
        q_better = math.fsum(q[name] for name in better)
        q_worse = math.fsum(q[name] for name in worse)
        used_better = math.fsum(used[name] for name in better)

        shares = fair_shares(jobs, capacity)
        after: dict[str, float] = {}
        why: dict[str, str] = {}
        for job in jobs:
            name = job.name
            old = new = limits[name]
            if name not in classes:
                after[name] = shares[name]
                share = snapshot.resource.amount(shares[name])
                why[name] = f"no latency target: the job gets its fair share, {share}"
                continue
            if classes[name] is QoeClass.BETTER:
                new = used[name] * (1 - rule.beta * q[name] / q_better)
            elif classes[name] is QoeClass.WORSE:
                taken_from = old if rule.reading == "own" else used_better
                new = old + rule.beta * taken_from * q[name] / q_worse
            bounds = claim(job, capacity)
            new = min(max(new, rule.floor_ratio * equal, bounds.floor_cores), bounds.ceiling_cores)
            after[name] = new
            change = f"{old:.3f} -> {snapshot.resource.amount(new)}"
            why[name] = f"{classes[name]}, q {q[name] * 1e3:+.1f} ms: {change}"

        missed_s = math.fsum(abs(q[name]) for name in (*better, *worse))
        calm = before is not None and missed_s <= before.missed_s and not snapshot.wakes
        interval_s = rule.interval_s
        if before is not None and calm:
            interval_s = min(2 * before.interval_s, rule.backoff * rule.interval_s)
        return Decision(
            limits={name: Limits(cpu_cores=cores) for name, cores in after.items()},
            why=why,
            memory=DqoesPublishedMemory(tuple(after.items()), interval_s, missed_s),
            next_s=interval_s,
        )


def qoe_class(target_s: float, q_s: float, alpha: float) -> QoeClass:
    """The class of a job that is `q_s` faster (above 0) or slower than its target."""
    if q_s > alpha * target_s:
        return QoeClass.BETTER
    if q_s < -alpha * target_s:
        return QoeClass.WORSE
    return QoeClass.SATISFIED


def _q(job: JobView) -> float:
    """Target less measured latency, in seconds; 0 without a target."""
    target = job.spec.target
    if not isinstance(target, LatencyTarget):
        return 0.0
    p = against_target_s(job.progress.window, target)
    if p is None:
        p = against_target_s(job.progress.recent, target)
    if p is None:
        # No request finished at all: an unanswered one is at least as slow as it is old.
        return min(target.seconds - job.progress.oldest_s, 0.0)
    return target.seconds - p

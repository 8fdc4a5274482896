"""The policy `flowcon`: the rule as published, weaknesses included. It uses growth, not targets."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from dlsched.estimate.growth import Point, efficiency, levels, points, usage_ratio
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.fair_share import claim, fair_shares
from dlsched.policies.ranges import above_zero, at_least


class FlowConList(StrEnum):
    """The list of a job, from growing to converged."""

    NEW = "new"
    WATCHING = "watching"
    COMPLETING = "completing"


_NEXT = {
    FlowConList.NEW: FlowConList.WATCHING,
    FlowConList.WATCHING: FlowConList.COMPLETING,
    FlowConList.COMPLETING: FlowConList.COMPLETING,
}


@dataclass(frozen=True, slots=True)
class FlowConParameters:
    """The published constants; beta is 1 + 1/n and no parameter."""

    alpha: float = 0.03
    """Growth efficiency from which a job still grows, in normalised loss per second on the whole
    node: the authors' value."""
    interval_s: float = 30.0
    """Seconds between decisions: the authors' value. Growth compares the mean loss of the last so
    many seconds with that of as many before. A job's last 256 reports are kept, and both times must
    fit: with one report a second at most 120."""

    def __post_init__(self) -> None:
        above_zero(self, "alpha")
        at_least(1, self, "interval_s")


@dataclass(frozen=True, slots=True)
class FlowConJob:
    """What the policy remembers of one start of a job."""

    name: str
    container_id: str | None
    starts: int
    stands: FlowConList = FlowConList.NEW
    metric: str = ""
    largest: float = 0.0
    """Largest loss so far, in the metric's unit."""


@dataclass(frozen=True, slots=True)
class FlowConMemory:
    """The lists, and the period after backoff."""

    jobs: tuple[FlowConJob, ...]
    period_s: float


class FlowConPolicy:
    """Jobs whose loss still falls get CPU by growth efficiency, converged ones a small limit.

    When all have converged, all limits are lifted and the period backs off. FlowCon
    (doi 10.1145/3337821.3337868), algorithm from the authors' code: E is the mean loss over an
    interval, as a ratio of the largest so far; P = |E_i - E_(i-1)| / interval; R the fraction of
    the node used; G = P/R, 0 without data; S the sum of G; N the capacity; n the number of jobs.

    1. G < alpha: New -> Watching -> Completing, which stays; G >= alpha: back to New.
    2. All were Completing before this pass: every limit is lifted.
    3. Else, unless S = 0: Watching unchanged; Completing max(G/S, 1/(n+1)) N; New G/S N.
    4. All Completing after a pass: the period doubles, the windows stay. An arrival or an exit:
       a pass immediately, and back to the base period.

    Where we differ: limits are not truncated to whole cores (there, `--cpus 0` set none). A job
    whose first report is younger than an interval stays on its list, so one that has not reported
    yet is never considered converged; while it is New it has its fair share whenever others are
    limited. So has a job with a latency target, which is on no list.

    Known weaknesses, kept: |dE| counts divergence and noise as progress; G rewards starvation;
    silence, and reports rarer than the interval, count as no growth; several arrivals in a row move
    a job down its lists on the same data; what a job cannot use of its limit is wasted; limits may
    sum above the node; weights count for fair shares only.
    """

    Parameters: ClassVar[type[FlowConParameters]] = FlowConParameters
    Memory: ClassVar[type[FlowConMemory]] = FlowConMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, parameters: FlowConParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        rule = self.parameters
        capacity = snapshot.node.capacity_cores
        before = memory if isinstance(memory, FlowConMemory) else None
        jobs = sorted(snapshot.running, key=lambda job: job.name)
        training = [job for job in jobs if not isinstance(job.spec.target, LatencyTarget)]
        known = {job.name: _known(job, before) for job in training}
        lift = bool(training) and all(
            one.stands is FlowConList.COMPLETING for one in known.values()
        )

        growth: dict[str, float | None] = {}
        for job in training:
            known[job.name], ratios = _read(job, known[job.name])
            growth[job.name] = g = self._growth(job, ratios, snapshot)
            if g is not None:
                one = known[job.name]
                moved = FlowConList.NEW if g >= rule.alpha else _NEXT[one.stands]
                known[job.name] = replace(one, stands=moved)
        whole = math.fsum(g for g in growth.values() if g is not None)

        shares = fair_shares(jobs, capacity)
        limits: dict[str, float | None] = {}
        why: dict[str, str] = {}
        for job in jobs:
            name, g = job.name, growth.get(job.name)
            stands = known[name].stands if name in known else None
            text = f"{stands or 'latency target'}, "
            text += "no growth is measured yet" if g is None else f"G {g:.4f} of {whole:.4f}"
            if lift:
                limits[name], does = None, "no limit, as all trainings have converged"
            elif whole == 0:
                limits[name], does = job.desired.cpu_cores, "limit kept, as no training grows"
            elif stands is FlowConList.WATCHING:
                limits[name], does = job.desired.cpu_cores, "limit kept"
            elif stands is None or (stands is FlowConList.NEW and g is None):
                share = snapshot.resource.amount(shares[name])
                limits[name], does = shares[name], f"fair share of {share}"
            else:
                least = 1 / (len(jobs) + 1) if stands is FlowConList.COMPLETING else 0.0
                cores = max((g or 0.0) / whole, least) * capacity
                limits[name], does = cores, snapshot.resource.amount(cores)
            why[name] = f"{text}: {does}"

        period_s = rule.interval_s
        done = bool(known) and all(one.stands is FlowConList.COMPLETING for one in known.values())
        if before is not None and done and not snapshot.wakes:
            period_s = 2 * before.period_s
        return Decision(
            limits={job.name: _within_bounds(job, limits[job.name], capacity) for job in jobs},
            why=why,
            memory=FlowConMemory((*known.values(), *_resting(snapshot, before)), period_s),
            next_s=period_s,
        )

    def _growth(self, job: JobView, losses: tuple[Point, ...], snapshot: Snapshot) -> float | None:
        """G; None for a job whose first report is younger than an interval, or of unread usage."""
        interval_s = self.parameters.interval_s
        used = usage_ratio(job, snapshot.node.capacity_cores)
        found = levels(losses, snapshot.now_s, interval_s)
        if used is None or not losses or losses[0][0] > snapshot.now_s - interval_s:
            return None
        if found is None:
            return 0.0
        return efficiency(abs(found.last - found.before) / interval_s, used)


def _read(job: JobView, known: FlowConJob) -> tuple[FlowConJob, tuple[Point, ...]]:
    """The job with its largest loss, and its losses as ratios of that. Without a reported `loss`
    its target's metric or `accuracy` is used: 1 - value where higher is better."""
    target = job.spec.target
    wanted = target.metric if isinstance(target, AccuracyTarget) else "accuracy"
    lower_is_better = isinstance(target, AccuracyTarget) and target.finish < target.deliver
    candidates = (("loss", True), (wanted, lower_is_better), ("accuracy", False))
    for metric, is_loss in candidates:
        values = points(job, metric)
        if not values:
            continue
        losses = [(at_s, value if is_loss else 1 - value) for at_s, value in values]
        largest = max(abs(loss) for _, loss in losses)
        if metric == known.metric:
            largest = max(largest, known.largest)
        ratios = tuple((at_s, loss / largest if largest else 0.0) for at_s, loss in losses)
        return replace(known, metric=metric, largest=largest), ratios
    return known, ()


def _known(job: JobView, before: FlowConMemory | None) -> FlowConJob:
    """The memory of this start of the job; a job that was started again is New."""
    fresh = FlowConJob(job.name, job.container_id, job.starts)
    for one in before.jobs if before else ():
        if (one.name, one.container_id, one.starts) == (job.name, job.container_id, job.starts):
            return one
    return fresh


def _resting(snapshot: Snapshot, before: FlowConMemory | None) -> list[FlowConJob]:
    """The jobs that do not run now, so that a paused one returns to its list."""
    names = {job.name for job in snapshot.jobs if not job.runs}
    return [one for one in (before.jobs if before else ()) if one.name in names]


def _within_bounds(job: JobView, cores: float | None, capacity_cores: float) -> Limits:
    if cores is None:
        return Limits()
    bounds = claim(job, capacity_cores)
    return Limits(min(max(cores, bounds.floor_cores), bounds.ceiling_cores))

"""Scores simulated runs by job and run, beside plain Docker and the clairvoyant's bounds. Scores
use the simulated world's truth, not an agent's measurements."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dlsched.model.spec import BAND_RATIO, LatencyTarget, Tier
from dlsched.simulation import bounds
from dlsched.simulation.node.service import quantile_factor
from dlsched.simulation.node.training import Training, tier_steps
from dlsched.simulation.node.workloads import ServiceLoad, SimulatedJob, Trace, TrainingLoad
from dlsched.simulation.node.world import Computation

PLAIN = "none"
"""The baseline policy: Docker without limits."""

_GOALS = {"tier1": "tier1", "tier2": "tier2", "completion": "jct"}
"""A training's goals, with the names of their metrics."""

_TIERS: Mapping[str, Tier | None] = {
    "tier1": Tier.DELIVER,
    "tier2": Tier.FINISH,
    "completion": None,
}

WORSE_RATIO = 1.01
"""A job got worse when its time exceeds plain Docker's by this factor."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of one job; times count from its arrival. None: not reached, or no such target."""

    name: str
    kind: str
    arrived_s: float
    there_s: float
    """Time that it has in the trace."""
    tier1_s: float | None = None
    tier2_s: float | None = None
    completion_s: float | None = None
    goals: tuple[str, ...] = ()
    """Goals that its work can reach: of tier1, tier2, completion."""
    satisfied_ratio: float | None = None
    """Fraction of its time in which the true latency was within 10 % of the target."""
    met_ratio: float | None = None
    """Fraction of its time in which it was at most the target."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run: one policy, one seed."""

    policy: str
    seed: int
    ended_s: float
    cycles: int
    updates: int
    """Number of limits or shares changed on running containers."""
    jobs: tuple[JobResult, ...]
    alarms: tuple[str, ...] = ()
    """The controller's alarms, each once, among them a policy's failure."""

    def times(self, goal: str) -> dict[str, float]:
        """Seconds from arrival to that goal, for every job whose work leads to it.

        A goal not reached counts with the time that the job had: too short, but leaving it out
        would reward starving it.
        """
        return {
            job.name: job.there_s if (at_s := getattr(job, f"{goal}_s")) is None else at_s
            for job in self.jobs
            if goal in job.goals
        }

    def metrics(self) -> dict[str, float]:
        """The run in numbers, by metric, without those that were not measured."""
        measured: dict[str, float] = {}
        for goal, name in _GOALS.items():
            times = sorted(self.times(goal).values())
            if not times:
                continue
            reached = [job for job in self.jobs if getattr(job, f"{goal}_s") is not None]
            measured[f"{name}_mean_s"] = statistics.fmean(times)
            measured[f"{name}_median_s"] = statistics.median(times)
            measured[f"{name}_p95_s"] = times[_p95_rank(len(times)) - 1]
            measured[f"{name}_reached_ratio"] = len(reached) / len(times)
        trainings = [job for job in self.jobs if job.kind == "training"]
        ends = [job.arrived_s + (job.completion_s or math.inf) for job in trainings]
        if ends and max(ends) < math.inf:
            measured["makespan_s"] = max(ends) - min(job.arrived_s for job in trainings)
        for key in ("satisfied", "met"):
            served = [job for job in self.jobs if getattr(job, f"{key}_ratio") is not None]
            if served:
                measured[f"{key}_mean_ratio"] = statistics.fmean(
                    (getattr(job, f"{key}_ratio") for job in served),
                    weights=[job.there_s for job in served],
                )
        measured["updates"] = self.updates
        return measured


@dataclass(frozen=True, slots=True)
class Row:
    """One number of one run, beside the clairvoyant's and plain Docker's."""

    scenario: str
    n: int
    policy: str
    seed: int
    metric: str
    value: float
    of_optimum: float | None
    of_plain: float | None


def rows(trace: Trace, runs: Sequence[RunResult]) -> tuple[Row, ...]:
    """Every number of every run. `runs` include plain Docker under each seed."""
    plain = {run.seed: run for run in runs if run.policy == PLAIN}
    optimum, alone = optima(trace), alone_s(works_of(trace), trace.node.cores)
    return tuple(
        row for run in runs for row in run_rows(trace.name, run, plain[run.seed], optimum, alone)
    )


def run_rows(
    scenario: str,
    run: RunResult,
    plain: RunResult,
    optimum: Mapping[str, float],
    alone: Mapping[str, Mapping[str, float]],
    more: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
) -> list[Row]:
    """Every number of one run; `more` are further numbers of it and of plain Docker."""
    own, base = ({**one.metrics(), **also} for one, also in zip((run, plain), more, strict=True))
    numbers = [
        (metric, value, _part(value, optimum.get(metric)), _part(value, base.get(metric)))
        for metric, value in own.items()
    ]
    if run.policy != PLAIN:
        numbers += beside_plain(run, plain, alone)
    return [
        Row(scenario, len(run.jobs), run.policy, run.seed, metric, value, best, part)
        for metric, value, best, part in numbers
    ]


def beside_plain(
    run: RunResult, plain: RunResult, alone: Mapping[str, Mapping[str, float]] | None = None
) -> list[tuple[str, float, float | None, float | None]]:
    """By goal: the job that gained most over plain Docker, the one that lost most, how many lost.

    Each as metric, value, ratio to the job's time alone on the node (`alone`, by goal and job), and
    ratio to plain Docker's.
    """
    found: list[tuple[str, float, float | None, float | None]] = []
    for goal, name in _GOALS.items():
        base = plain.times(goal)
        ratios = {
            job: (time_s / base[job], time_s, job)
            for job, time_s in run.times(goal).items()
            if base.get(job)
        }
        if not ratios:
            continue
        for label, (ratio, time_s, job) in (
            ("best", min(ratios.values())),
            ("worst", max(ratios.values())),
        ):
            part = _part(time_s, (alone or {}).get(goal, {}).get(job))
            found.append((f"{name}_{label}_s", time_s, part, ratio))
        worse = sum(ratio > WORSE_RATIO for ratio, _, _ in ratios.values())
        found.append((f"{name}_worse_jobs", float(worse), None, None))
    return found


def job_result(job: SimulatedJob, load: Computation, ended_s: float) -> JobResult:
    there_s = max(0.0, _leaves_s(job, ended_s) - job.arrives_s)
    if isinstance(load, Training):
        steps = tier_steps(load.load, job.spec.target)
        tiers = [goal for goal, tier in _TIERS.items() if tier in steps]
        first, second = (since(load.tier_times_s.get(tier), job.arrives_s) for tier in Tier)
        return JobResult(
            job.name,
            "training",
            job.arrives_s,
            there_s,
            tier1_s=first,
            tier2_s=second,
            completion_s=since(load.completed_s, job.arrives_s),
            goals=(*tiers, "completion"),
        )
    asked = job.spec.target is not None and there_s > 0
    return JobResult(
        job.name,
        "service",
        job.arrives_s,
        there_s,
        satisfied_ratio=load.within_s / there_s if asked else None,
        met_ratio=load.met_s / there_s if asked else None,
    )


def since(at_s: float | None, arrived_s: float) -> float | None:
    return None if at_s is None else at_s - arrived_s


def _leaves_s(job: SimulatedJob, ended_s: float) -> float:
    return ended_s if job.leaves_s is None else min(job.leaves_s, ended_s)


def _part(value: float, of: float | None) -> float | None:
    return value / of if of else None


def optima(trace: Trace) -> dict[str, float]:
    """The clairvoyant's bounds, by metric."""
    cores = trace.node.cores
    found = training_optima(works_of(trace).values(), cores)
    services = [
        job
        for job in trace.jobs
        if isinstance(job.load, ServiceLoad) and job.spec.target is not None
    ]
    there_s = [_leaves_s(job, trace.duration_s) - job.arrives_s for job in services]
    for metric, band in (("satisfied_mean_ratio", BAND_RATIO), ("met_mean_ratio", 0.0)):
        if services:
            wanted_cores = [
                demand for job in services for demand in demands(job, trace.duration_s, band)
            ]
            queued_s = math.fsum(_queued_s(job, trace.duration_s, band) for job in services)
            best_s = bounds.satisfied_job_s(wanted_cores, cores, queued_s)
            found[metric] = best_s / math.fsum(there_s)
    return found


def training_optima(works: Collection[bounds.Work], cores: float) -> dict[str, float]:
    """The bounds of trainings alone."""
    jobs = list(works)
    found: dict[str, float] = {}
    if jobs:
        found["makespan_s"] = bounds.makespan_s(jobs, bounds.one_node(cores))
    for goal, name in _GOALS.items():
        wanted = list(bounds.goals(jobs, _TIERS[goal]).values())
        if not wanted:
            continue
        count = len(wanted)
        found[f"{name}_mean_s"] = bounds.mean_s(wanted, bounds.one_node(cores))
        middle = ((count + 1) // 2, count // 2 + 1)
        low, high = (bounds.least_s(wanted, cores, rank) for rank in middle)
        found[f"{name}_median_s"] = (low + high) / 2.0
        found[f"{name}_p95_s"] = bounds.least_s(wanted, cores, _p95_rank(count))
    return found


def alone_s(works: Mapping[str, bounds.Work], cores: float) -> dict[str, dict[str, float]]:
    """The time of each training alone on the node, by goal and job."""
    names = list(works)
    return {
        goal: {
            names[index]: one.alone_s(cores)
            for index, one in bounds.goals(list(works.values()), tier).items()
        }
        for goal, tier in _TIERS.items()
    }


def works_of(trace: Trace) -> dict[str, bounds.Work]:
    return {
        job.name: _work(job.load, job, trace.duration_s)
        for job in trace.jobs
        if isinstance(job.load, TrainingLoad)
    }


def _work(load: TrainingLoad, job: SimulatedJob, ended_s: float) -> bounds.Work:
    steps = tier_steps(load, job.spec.target)
    return bounds.Work(
        arrives_s=job.arrives_s,
        total_core_s=load.steps * load.work_core_s,
        threads=load.threads,
        tier_core_s={tier: step * load.work_core_s for tier, step in steps.items()},
        there_s=max(0.0, _leaves_s(job, ended_s) - job.arrives_s),
    )


def _p95_rank(count: int) -> int:
    return math.ceil(0.95 * count)


def demands(job: SimulatedJob, ended_s: float, band_ratio: float) -> list[bounds.Demand]:
    """The cores that keep the target, from one change of the load to the next."""
    load, target = job.load, job.spec.target
    assert isinstance(load, ServiceLoad) and isinstance(target, LatencyTarget)
    until_s = _leaves_s(job, ended_s)
    times = [job.arrives_s, *(one.at_s for one in job.shifts), ended_s]
    factors = [(1.0, 1.0), *((one.work, one.arrivals) for one in job.shifts)]
    at_most_s = target.seconds * (1.0 + band_ratio)
    return [
        bounds.Demand(
            max(begin_s, job.arrives_s),
            min(end_s, until_s),
            _cost_cores(load, target, work, arrivals, at_most_s),
        )
        for (begin_s, end_s), (work, arrivals) in zip(
            itertools.pairwise(times), factors, strict=True
        )
    ]


def _queued_s(job: SimulatedJob, ended_s: float, band_ratio: float) -> float:
    """How far work may lag behind its requests within the target."""
    load, target = job.load, job.spec.target
    assert isinstance(load, ServiceLoad) and isinstance(target, LatencyTarget)
    if load.open_rate_per_s is None:
        return 0.0
    there_s = max(0.0, _leaves_s(job, ended_s) - job.arrives_s)
    return min(there_s, target.seconds * (1.0 + band_ratio))


def _cost_cores(
    load: ServiceLoad, target: LatencyTarget, work: float, arrivals: float, at_most_s: float
) -> float:
    """Mean cores in use while it answers in that time; infinite when it cannot."""
    work_core_s = load.work_core_s * work
    slow = quantile_factor(load.noise, target.quantile)
    spare_s = at_most_s - load.overhead_s
    if spare_s <= 0 or work_core_s * slow / load.threads > spare_s * (1.0 + 1e-9):
        return math.inf
    if (rate := load.open_rate_per_s) is not None:
        return rate * arrivals * work_core_s
    # While it waits, other jobs may use its cores.
    return work_core_s / (load.overhead_s + spare_s / slow)

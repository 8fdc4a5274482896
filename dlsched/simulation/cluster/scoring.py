"""Scores of simulated clusters: each run in numbers, and its jobs beside those of the first run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlsched.simulation.cluster.run import ClusterOptions, ClusterRun, simulate_cluster
from dlsched.simulation.node.workloads import Trace

SLOWER_RATIO = 1.1
"""A job counts as slower when it takes more than this factor of its time in the first run."""


@dataclass(frozen=True, slots=True)
class Contender:
    """What is compared: a policy of the cluster, one of its nodes, with or without moves."""

    cluster: str
    policy: str
    moves: bool = True

    @property
    def name(self) -> str:
        return f"{self.cluster}+{self.policy}" + ("" if self.moves else ", no moves")


@dataclass(frozen=True, slots=True)
class ClusterScore:
    """One run in numbers. Times are completions of trainings from their arrival."""

    scenario: str
    contender: str
    seed: int
    mean_s: float
    median_s: float
    p95_s: float
    makespan_s: float | None
    """None: some training did not end."""
    moves: int
    failed_moves: int
    mean_ratio: float
    """To the first contender under the same seed."""
    makespan_ratio: float | None
    slower: int
    """Jobs that take more than 10 % longer than in that run."""
    worst_ratio: float
    worst: str
    """The job that lost most against that run."""


def compare_clusters(
    trace: Trace, contenders: Sequence[Contender], seeds: Iterable[int]
) -> tuple[tuple[ClusterScore, ...], tuple[ClusterRun, ...]]:
    """Every contender under every seed, scored beside the first; and the runs in the same order."""
    scores: list[ClusterScore] = []
    runs: list[ClusterRun] = []
    for seed in seeds:
        first: ClusterRun | None = None
        for one in contenders:
            options = ClusterOptions(policy=one.policy, moves=one.moves)
            run = simulate_cluster(trace, one.cluster, seed, options)
            first = first or run
            scores.append(score(trace.name, one.name, run, first))
            runs.append(run)
    return tuple(scores), tuple(runs)


def score(scenario: str, contender: str, run: ClusterRun, first: ClusterRun) -> ClusterScore:
    return scored(scenario, contender, run.seed, timed(run), timed(first))


@dataclass(frozen=True, slots=True)
class Timed:
    """What a run is scored by, simulated or not."""

    times_s: Mapping[str, float]
    """From arrival to the end, by training."""
    makespan_s: float | None
    moves: int
    failed_moves: int


def timed(run: ClusterRun) -> Timed:
    return Timed(completions_s(run), _makespan_s(run), run.moves, run.failed_moves)


def scored(scenario: str, contender: str, seed: int, run: Timed, first: Timed) -> ClusterScore:
    """One run in numbers, beside the first one under the same seed."""
    times, base = run.times_s, first.times_s
    ordered = sorted(times.values())
    ratios = sorted((times[job] / base[job], job) for job in times if base.get(job))
    worst_ratio, worst = ratios[-1] if ratios else (1.0, "")
    mean_s = statistics.fmean(ordered)
    makespan_s, base_makespan_s = run.makespan_s, first.makespan_s
    return ClusterScore(
        scenario,
        contender,
        seed,
        mean_s,
        statistics.median(ordered),
        ordered[math.ceil(0.95 * len(ordered)) - 1],
        makespan_s,
        run.moves,
        run.failed_moves,
        mean_s / statistics.fmean(base.values()),
        makespan_s / base_makespan_s if makespan_s and base_makespan_s else None,
        sum(ratio > SLOWER_RATIO for ratio, _ in ratios),
        worst_ratio,
        worst,
    )


def completions_s(run: ClusterRun) -> dict[str, float]:
    """Seconds from arrival to the last step, by training; all its time where it did not end."""
    return {
        job.name: job.there_s if job.completion_s is None else job.completion_s
        for job in run.jobs
        if job.kind == "training"
    }


def _makespan_s(run: ClusterRun) -> float | None:
    trainings = [job for job in run.jobs if job.kind == "training"]
    ends = [job.arrived_s + (job.completion_s or math.inf) for job in trainings]
    if not ends or max(ends) == math.inf:
        return None
    return max(ends) - min(job.arrived_s for job in trainings)

"""Harm: a job worse off than under plain Docker, judged by what truly became of it.

Owns the judgement of a pair of runs with the same seed: of services by their played requests, of
trainings by CPU time and end. It must not run them, nor look at what was reported.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.simulation.node.played import PlayedService, mean_or_quantile
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import Trace, TrainingLoad
from dlsched.simulation.node.world import Computation

SLOWER_RATIO, SLOWER_S = 1.1, 0.002
"""Slower than by this factor and so much more is harm; less is not felt."""
NEAR_RATIO = 0.8
"""Fraction of the target: a service below it is not harmed, however much slower it has become."""
FULL_RATIO = 0.85
"""Of the node: services that need more in any second may be in each other's way."""
P95_REQUESTS = 200
"""A p95 of fewer requests is chance."""
LATER_RATIO = 1.05
"""A training that ends later than by this factor is harmed."""
CPU_RATIO = 0.9
"""One with less than this part of plain Docker's CPU is harmed, while no service misses there."""
ORDER_RATIO = 0.98
"""Where all trainings together keep this part, one has what another lost: that is order."""
CALM_S = 10.0
"""Length of the intervals of which is judged whether a service misses its target."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the requests of one service took, in seconds."""

    mean_s: float
    p95_s: float | None
    """None: of too few requests."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One service in both runs."""

    name: str
    weight: float
    target: LatencyTarget | None
    plain: PlayedService
    own: PlayedService


@dataclass
class Run:
    """What each job truly did under one policy."""

    loads: dict[str, Computation] = field(default_factory=dict)
    updates: int = 0
    times_s: list[float] = field(default_factory=list)
    used_core_s: dict[str, list[float]] = field(default_factory=dict)
    """CPU time of each training at these times."""

    def watch(self, now_s: float, loads: Mapping[str, Computation]) -> None:
        """The next moment of that run."""
        self.loads.update(loads)
        self.times_s.append(now_s)
        for name, load in loads.items():
            if isinstance(load, Training):
                self.used_core_s.setdefault(name, []).append(load.usage_core_s)


def pairs_of(
    trace: Trace, plain: Mapping[str, Computation], own: Mapping[str, Computation]
) -> list[Pair]:
    """The played services of two runs of that trace."""
    found = []
    for job in trace.jobs:
        before, after, target = plain[job.name], own.get(job.name), job.spec.target
        if isinstance(before, PlayedService) and isinstance(after, PlayedService):
            assert target is None or isinstance(target, LatencyTarget)
            found.append(Pair(job.name, job.spec.weight, target, before, after))
    return found


def served(service: PlayedService) -> Served:
    """All its requests, those that wait at the end too."""
    took = _took(service)
    if not took:
        return Served(math.inf, None)
    p95_s = mean_or_quantile(took, 0.95) if len(took) >= P95_REQUESTS else None
    return Served(statistics.fmean(took), p95_s)


def harmed(plain: Served, own: Served, target_s: float | None) -> bool:
    """Whether that service is worse off for the policy."""
    near_s = 0.0 if target_s is None else NEAR_RATIO * target_s
    pairs = [(plain.mean_s, own.mean_s)]
    if plain.p95_s is not None and own.p95_s is not None:
        pairs.append((plain.p95_s, own.p95_s))
    return any(
        after_s > SLOWER_RATIO * before_s + SLOWER_S and after_s > near_s
        for before_s, after_s in pairs
    )


def harmed_trainings(trace: Trace, plain: Run, own: Run) -> tuple[list[str], list[str]]:
    """The trainings and other busy containers that are worse off, and by how much; and trainings
    that have less CPU for the good of other trainings, without a later end."""
    calm = _calm(trace, plain.loads)
    found: list[str] = []
    reordered: list[str] = []
    trainings = [job.name for job in trace.jobs if isinstance(job.spec.target, AccuracyTarget)]
    for name in plain.used_core_s:
        before, after = plain.loads[name], own.loads[name]
        assert isinstance(before, Training) and isinstance(after, Training)
        ends_s = before.completed_s or math.inf
        own_ends_s = after.completed_s or math.inf
        if min(own_ends_s, trace.duration_s) > LATER_RATIO * ends_s:
            found.append(f"{name}: ends {ends_s:.0f} -> {min(own_ends_s, trace.duration_s):.0f} s")
            continue
        both = [one for one in calm if (one + 1) * CALM_S <= min(ends_s, own_ends_s)]
        was, now = (_cpu_core_s(run, [name], both) for run in (plain, own))
        if now < CPU_RATIO * was:
            all_was, all_now = (_cpu_core_s(run, trainings, both) for run in (plain, own))
            kept = name in trainings and all_now >= ORDER_RATIO * all_was
            (reordered if kept else found).append(
                f"{name}: CPU {was:.1f} -> {now:.1f} core-s in {len(both) * CALM_S:.0f} s, "
                f"all trainings' {all_was:.1f} -> {all_now:.1f}"
            )
    return found, reordered


def _calm(trace: Trace, plain: Mapping[str, Computation]) -> Sequence[int]:
    """The intervals in which every service meets its target under plain Docker: none needs help
    there."""
    missed = set()
    for pair in pairs_of(trace, plain, plain):
        if pair.target is not None:
            for index, took in pair.plain.stretches(CALM_S).items():
                if mean_or_quantile(took, pair.target.quantile) > pair.target.seconds:
                    missed.add(index)
    return [index for index in range(int(trace.duration_s / CALM_S)) if index not in missed]


def _cpu_core_s(run: Run, names: Sequence[str], intervals: Sequence[int]) -> float:
    if not names or not intervals:
        return 0.0
    edges = np.arange(max(intervals) + 2) * CALM_S
    used = sum(np.interp(edges, run.times_s, run.used_core_s[name]) for name in names)
    return float(np.sum(np.diff(used)[list(intervals)]))


def busiest_ratio(trace: Trace, loads: Mapping[str, Computation]) -> float:
    """Part of the node that is needed in any one second: by the requests of played services which
    came in it, by other programs, and by containers without a target that use less than an even
    share.

    A node whose cores are slower while all are busy has no more than these slower cores.
    """
    seconds = [0.0] * math.ceil(trace.duration_s + 1.0)
    cores = trace.node.cores * trace.full_speed
    for job in trace.jobs:
        one, load = loads[job.name], job.load
        if isinstance(one, PlayedService):
            # Threads that wait for locks or spin use CPU time too; at the peak, and at worst.
            cost = 1.0 / one.load.spin_ratio
            if one.load.peak_cores < math.inf:
                cost /= one.load.efficiency(min(one.load.peak_cores, trace.node.cores))
            for at, core_s in enumerate(one.asked_core_s):
                seconds[at] += core_s * cost
        elif isinstance(load, TrainingLoad) and job.spec.target is None:
            is_small = load.threads < trace.node.cores / len(trace.jobs)
            seconds = [core_s + load.threads * is_small for core_s in seconds]
    for host in trace.host:
        for at in range(int(host.at_s), min(len(seconds), math.ceil(host.at_s + host.for_s))):
            seconds[at] += host.cores
    return max(seconds) / cores


def worse_jobs(
    trace: Trace, plain: Mapping[str, Computation], own: Mapping[str, Computation]
) -> int:
    """How many services are worse off than under plain Docker.

    Where the services fit the node in every second: those that are harmed. Elsewhere: those that
    meet their targets under plain Docker and miss them now, for whom no other one of at least
    their weight is met that was not.
    """
    pairs = pairs_of(trace, plain, own)
    if busiest_ratio(trace, plain) <= FULL_RATIO:
        return sum(is_harmed(one) for one in pairs)
    changed = [
        (one.weight, meets(one.plain, one.target), meets(one.own, one.target))
        for one in pairs
        if one.target is not None
    ]
    won = sorted(weight for weight, was, now in changed if now and not was)
    lost = 0
    for weight in sorted((weight for weight, was, now in changed if was and not now), reverse=True):
        if won and won[-1] >= weight:
            won.pop()
        else:
            lost += 1
    return lost


def is_harmed(pair: Pair) -> bool:
    """Whether that service is worse off for the policy."""
    target_s = None if pair.target is None else pair.target.seconds
    return harmed(served(pair.plain), served(pair.own), target_s)


def _took(service: PlayedService) -> list[float]:
    """All its requests, in seconds, those that wait at the end too."""
    return [one for stretch in service.stretches().values() for one in stretch]


def meets(service: PlayedService, target: LatencyTarget) -> bool:
    """Whether all its requests together meet the target."""
    took = _took(service)
    return bool(took) and mean_or_quantile(took, target.quantile) <= target.seconds

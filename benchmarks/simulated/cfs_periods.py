"""Services under the kernel's 100 ms CPU periods: are targets kept where the ceiling binds in part?

Owns these worlds. Closed loops of one client are played request by request on a node with room,
each under a ceiling with periods of its own: works of 3, 30 and 300 ms, with and without a fixed
wait (a network, a GPU) of a fifth of the target. Judged is the true mean from the third minute on.

    python -m benchmarks run cfs-periods   writes benchmarks/results/cfs-periods.json
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from benchmarks.publish import results
from benchmarks.publish.results import verdict
from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec, LatencyTarget
from dlsched.policies.registry import load
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.played import PlayedService
from dlsched.simulation.node.starting import Computation
from dlsched.simulation.node.workloads import ServiceLoad, SimulatedJob, Trace
from dlsched.simulation.run import simulate

NAME = "cfs-periods"
POLICIES = ("adaptive?mode=band", "dqoes")
WORKS_CORE_S = (0.003, 0.03, 0.3)
WAIT_RATIOS = (0.0, 0.2)
"""Of the target."""
SEEDS = range(101, 111)
SERVICES, CORES, DURATION_S, JUDGED_FROM_S = 4, 4.0, 180.0, 60.0
HELD_CORES = 0.35
"""The ceiling that meets the target."""
BAND_RATIO = 0.1
STRETCH_S = 30.0


@dataclass(frozen=True)
class Row:
    """One service in one world."""

    policy: str
    work_ms: float
    wait_ratio: float
    seed: int
    throttled_ratio: float
    """Part of the periods in which its ceiling stopped it, in the mean."""
    of_target: float
    """True mean latency over the target."""


def trace_of(work_core_s: float, wait_ratio: float) -> Trace:
    """Services that meet their targets under the same ceiling."""
    target_s = work_core_s / HELD_CORES / (1.0 - wait_ratio)
    loop = Loop("closed", clients=1)
    load = ServiceLoad(work_core_s, overhead_s=wait_ratio * target_s, noise=0.2, loop=loop)
    jobs = [
        SimulatedJob(
            JobSpec(f"service-{index}", ContainerSpec("model"), target=LatencyTarget(target_s)),
            load,
        )
        for index in range(SERVICES)
    ]
    return Trace(NodeFact(CORES, 1 << 34), tuple(jobs), DURATION_S)


def rows_of(policy: str, work_core_s: float, wait_ratio: float, seed: int) -> list[Row]:
    """Every service of that world."""
    trace = trace_of(work_core_s, wait_ratio)
    found: dict[str, Computation] = {}
    throttled: dict[str, list[float]] = {job.name: [] for job in trace.jobs}

    def publish(report: CycleReport) -> None:
        if report.snapshot.now_s >= JUDGED_FROM_S:
            for job in report.snapshot.jobs:
                throttled[job.name].append(job.usage.throttled_ratio or 0.0)

    named = NamedPolicy(policy, load(policy))
    simulate(trace, named, seed, publish=publish, inspect=lambda _, loads: found.update(loads))
    rows = []
    for job in trace.jobs:
        one, target = found[job.name], job.spec.target
        assert isinstance(one, PlayedService) and isinstance(target, LatencyTarget)
        late = [
            took
            for at, stretch in one.stretches().items()
            if at * STRETCH_S >= JUDGED_FROM_S
            for took in stretch
        ]
        rows.append(
            Row(
                policy,
                1000 * work_core_s,
                wait_ratio,
                seed,
                round(statistics.fmean(throttled[job.name]), 3),
                round(statistics.fmean(late) / target.seconds, 4),
            )
        )
    return rows


def table_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """One line a work, wait and policy."""
    table = []
    kinds = dict.fromkeys((row.work_ms, row.wait_ratio, row.policy) for row in rows)
    for work_ms, wait_ratio, policy in kinds:
        mine = [
            r for r in rows if (r.work_ms, r.wait_ratio, r.policy) == (work_ms, wait_ratio, policy)
        ]
        within = [abs(row.of_target - 1.0) <= BAND_RATIO for row in mine]
        table.append(
            {
                "work, ms": work_ms,
                "wait, of the target": wait_ratio,
                "policy": policy,
                "throttled periods": round(
                    statistics.fmean(row.throttled_ratio for row in mine), 2
                ),
                "mean / target": round(statistics.fmean(row.of_target for row in mine), 3),
                "slowest": max(row.of_target for row in mine),
                "within 10 %": f"{sum(within)} of {len(within)}",
            }
        )
    return table


def headline(rows: Sequence[Row]) -> str:
    """Whether a fixed wait is seen where a ceiling binds in part of the periods."""
    ours = [row for row in rows if row.policy == POLICIES[0]]
    slow = sum(row.of_target > 1.0 + BAND_RATIO for row in ours)
    reached = verdict(not slow)
    return (
        f"Under `band`, services with and without a fixed wait that are slower than 1.1 times "
        f"their target: {slow} of {len(ours)} (asked: none): {reached}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Play, print and save; returns the exit code."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args(arguments)
    rows = [
        row
        for work, wait, seed, policy in itertools.product(
            WORKS_CORE_S, WAIT_RATIOS, SEEDS, POLICIES
        )
        for row in rows_of(policy, work, wait, seed)
    ]
    title, table, told = "Closed loops under CPU periods, ten seeds", table_of(rows), headline(rows)
    results.save(
        NAME,
        results.host_facts("none"),
        list(SEEDS),
        [asdict(row) for row in rows],
        title=title,
        table=table,
        headlines=[told],
    )
    console = Console()
    results.show(console, {title: table})
    console.print(f"\n{told}", markup=False, soft_wrap=True)
    return 0

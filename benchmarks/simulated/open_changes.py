"""Services under open loops when something changes.

Owns these worlds. It is judged who meets his target in the stretch that begins 15 s after the
change, beside plain Docker and a clairvoyant who knows the changed world.

    python -m benchmarks run open-changes   writes benchmarks/results/open-changes.json
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.simulated.open_loop import clairvoyant, met_jobs, play_requests
from benchmarks.simulated.playing import in_processes, judge_seeds
from dlsched.simulation.node.workloads import HostLoad, ServiceLoad, Shift, Trace
from dlsched.simulation.scoring import PLAIN
from tests.worlds.open_worlds import CORES, DURATION_S, Scenario, world

NAME = "open-changes"
OURS = "adaptive"
SEEDS = range(101, 106)
SERVICES = 10
CHANGES_AT_S, JUDGED_FROM = 75.0, 3
"""The stretch with this index begins 15 s after the change."""
LEAST_OF_BEST = 0.9
CHANGES = {
    "half the node taken by others": Scenario("poisson", 0.4),
    "half the node taken by others, 2 trainings": Scenario("poisson", 0.4, trainings=2),
    "twice the requests": Scenario("poisson", 0.35),
    "twice the requests, too many": Scenario("poisson", 0.6),
    "twice the requests, 2 trainings": Scenario("poisson", 0.35, trainings=2),
}


def changed(name: str, seed: int) -> Trace:
    """That world, changed in its second minute."""
    trace = world(CHANGES[name], SERVICES, seed)
    if name.startswith("half"):
        taken = HostLoad(CHANGES_AT_S, DURATION_S, CORES / 2, cpu_shares=1024 * SERVICES)
        return replace(trace, host=(taken,))
    twice = (Shift(CHANGES_AT_S, arrivals=2.0),)
    jobs = (
        replace(job, shifts=twice) if isinstance(job.load, ServiceLoad) else job
        for job in trace.jobs
    )
    return replace(trace, jobs=tuple(jobs))


@dataclass(frozen=True)
class Row:
    """One world under `adaptive`; services that meet their targets."""

    world: str
    seed: int
    met_jobs: float
    plain_jobs: float
    best_jobs: float
    """The clairvoyant's of the changed world."""


def row_of(name: str, seed: int) -> Row:
    trace = changed(name, seed)
    runs = [play_requests(trace, policy, seed) for policy in (OURS, PLAIN)]
    runs.append(clairvoyant(trace, seed, first=JUDGED_FROM))
    return Row(name, seed, *(met_jobs(trace, one, first=JUDGED_FROM) for one in runs))


def table_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A line a kind of world, means over its seeds."""
    return [
        {
            "world": name,
            "seeds": len(mine),
            "plain Docker": round(statistics.fmean(row.plain_jobs for row in mine), 2),
            OURS: round(statistics.fmean(row.met_jobs for row in mine), 2),
            "clairvoyant": round(statistics.fmean(row.best_jobs for row in mine), 2),
        }
        for name, mine in results.grouped(rows, lambda row: row.world).items()
    ]


def headline(rows: Sequence[Row]) -> str:
    """How far the figure that was asked for is."""
    worlds = results.grouped(rows, lambda row: row.world)
    parts = {
        name: sum(row.met_jobs for row in mine) / (sum(row.best_jobs for row in mine) or 1.0)
        for name, mine in worlds.items()
    }
    kept = [part >= LEAST_OF_BEST - 5e-4 for part in parts.values()]
    worst = min(parts, key=parts.__getitem__)
    return (
        "15 s after a change, the services not slower than their targets are at least .9 of the "
        f"clairvoyant's of the changed world: in {sum(kept)} of {len(kept)} rows, the worst "
        f"{parts[worst]:.3f} ({worst}): {verdict(all(kept))}"
    )


def main(arguments: list[str] | None = None) -> int:
    def rows_of(seeds: Sequence[int]) -> list[Row]:
        return in_processes(row_of, product(CHANGES, seeds))

    title = "Ten services when something changes"
    return judge_seeds(
        NAME,
        __doc__,
        arguments,
        SEEDS,
        rows_of,
        lambda rows: {title: table_of(rows)},
        lambda rows: [headline(rows)],
    )

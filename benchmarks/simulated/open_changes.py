"""Services under open loops when something changes, and when they report seldom.

Owns these worlds. Of a change it is judged who meets his target in the stretch that begins 15 s
after it, beside plain Docker and a clairvoyant who knows the changed world. Of rare reports, what
is met beside the same world with a report every second.

    python -m benchmarks run open-changes   writes benchmarks/results/open-changes.json
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.simulated.open_loop import clairvoyant, met_jobs, play_requests
from benchmarks.simulated.playing import in_processes
from dlsched.simulation.node.workloads import HostLoad, ServiceLoad, Shift, SimulatedJob, Trace
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
RARE = {
    "reports, 2 trainings": Scenario("poisson", 0.5, trainings=2),
    "reports, too many requests": Scenario("poisson", 1.2),
}
EVERY_S = {5.0: 0.95, 10.0: 0.9, 30.0: 0.8}
"""Seconds between reports, and the least part of what is met with one a second."""
REPORTS = 40


@dataclass(frozen=True)
class Row:
    """One world under `adaptive`."""

    world: str
    seed: int
    every_s: float
    met_jobs: float
    plain_jobs: float
    beside_jobs: float
    """The clairvoyant's of the changed world, or ours with a report every second."""


def changed(name: str, seed: int) -> Trace:
    """That world, changed in its second minute."""
    trace = world(CHANGES[name], SERVICES, seed)
    if name.startswith("half"):
        taken = HostLoad(CHANGES_AT_S, DURATION_S, CORES / 2, cpu_shares=1024 * SERVICES)
        return replace(trace, host=(taken,))
    twice = (Shift(CHANGES_AT_S, arrivals=2.0),)
    return replace(trace, jobs=_services_changed(trace, lambda job: replace(job, shifts=twice)))


def rare(name: str, every_s: float, duration_s: float, seed: int) -> Trace:
    """That world with a report so often."""
    trace = world(RARE[name], SERVICES, seed)
    jobs = _services_changed(
        trace, lambda job: replace(job, load=replace(job.load, report_s=every_s))
    )
    window_s = max(trace.window_s, 2.0 * every_s)
    return replace(trace, jobs=jobs, duration_s=duration_s, window_s=window_s)


def _services_changed(
    trace: Trace, change: Callable[[SimulatedJob], SimulatedJob]
) -> tuple[SimulatedJob, ...]:
    return tuple(change(job) if isinstance(job.load, ServiceLoad) else job for job in trace.jobs)


def row_of(name: str, seed: int, every_s: float) -> Row:
    """One world; reports every second unless it says otherwise."""
    if name in CHANGES:
        trace = changed(name, seed)
        runs = [play_requests(trace, policy, seed) for policy in (OURS, PLAIN)]
        runs.append(clairvoyant(trace, seed, first=JUDGED_FROM))
        return Row(name, seed, 1.0, *(met_jobs(trace, one, first=JUDGED_FROM) for one in runs))
    duration_s = REPORTS * every_s + 60.0
    often, seldom = (rare(name, each_s, duration_s, seed) for each_s in (1.0, every_s))
    both = ((seldom, OURS), (often, PLAIN), (often, OURS))
    jobs = (met_jobs(trace, play_requests(trace, policy, seed)) for trace, policy in both)
    return Row(name, seed, every_s, *jobs)


def tasks(seeds: Sequence[int]) -> list[tuple[str, int, float]]:
    found = [(name, seed, 1.0) for name in CHANGES for seed in seeds]
    return found + [(name, seed, every) for name in RARE for every in EVERY_S for seed in seeds]


def table_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A line a kind of world, means over its seeds."""
    table: list[dict[str, object]] = []
    for (name, every_s), mine in results.grouped(
        rows, lambda row: (row.world, row.every_s)
    ).items():
        own, plain, beside = (
            statistics.fmean(getattr(row, what) for row in mine)
            for what in ("met_jobs", "plain_jobs", "beside_jobs")
        )
        table.append(
            {
                "world": name,
                "a report every, s": every_s,
                "seeds": len(mine),
                "plain Docker": round(plain, 2),
                OURS: round(own, 2),
                "clairvoyant, or a report every second": round(beside, 2),
                "part of it": round(own / beside, 3) if beside else None,
                "asked": LEAST_OF_BEST if name in CHANGES else EVERY_S[every_s],
            }
        )
    return table


_AFTER_CHANGES = (
    "15 s after a change, the services not slower than their targets are at least .9 of the "
    "clairvoyant's of the changed world"
)
_REPORTING_RARELY = (
    "With a report every 5, 10 and 30 s, they are at least .95, .9 and .8 of what they are with "
    "one a second"
)


def headlines(table: Sequence[dict[str, object]]) -> list[str]:
    """One sentence each for changes and for rare reports."""
    told = []
    for claim, of_changes in ((_AFTER_CHANGES, True), (_REPORTING_RARELY, False)):
        lines = [line for line in table if (line["world"] in CHANGES) is of_changes]
        parts = [(float(str(line["part of it"] or 1.0)), line) for line in lines]
        kept = [part >= float(str(line["asked"])) - 5e-4 for part, line in parts]
        worst, line = min(parts, key=lambda one: one[0] - float(str(one[1]["asked"])))
        reached = verdict(all(kept))
        told.append(
            f"{claim}: in {sum(kept)} of {len(kept)} rows, the worst {worst:.3f} "
            f"({line['world']}, a report every {line['a report every, s']:g} s): {reached}"
        )
    return told


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, seeds=(len(SEEDS), "how many; fewer: not saved"))
    seeds = SEEDS[: chosen.seeds]
    rows = in_processes(row_of, tasks(seeds))
    table = table_of(rows)
    tables = {"Ten services when something changes, and when they report seldom": table}
    results.finish(NAME, "none", seeds, rows, tables, headlines(table), whole=seeds == SEEDS)
    return 0

"""No service is worse off for `adaptive` than under plain Docker: many drawn worlds, paired.

Owns the count. Both runs of a world play the same requests, and a service is judged by what they
took. Worlds whose services and outside load need over 85 % of the node in some second are counted
apart.

    python -m benchmarks run no-harm                writes benchmarks/results/no-harm.json
    python -m benchmarks run no-harm --worlds 100   prints alone
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from benchmarks.judge.harm import FULL_RATIO, busiest_ratio, harmed, pairs_of, served
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.simulated.harm_worlds import CORES, DURATION_S, World, drawn
from benchmarks.simulated.traces_pool import in_processes
from dlsched.control.decider import NamedPolicy
from dlsched.policies.registry import load
from dlsched.simulation.node.starting import Computation
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN

NAME = "no-harm"
OURS = "adaptive"
WORLDS, FIRST_SEED = 2000, 10_001
MOST_OPEN = 1 / 1000


@dataclass(frozen=True)
class Row:
    """One world."""

    seed: int
    busiest_ratio: float
    """Part of the node that services and outside load need in the busiest second."""
    services: int
    harmed: tuple[str, ...]
    """What each harmed service took: mean and p95 under plain Docker, and under ours, in ms."""
    updates_per_min: float


def play(trace: Trace, policy: str, seed: int) -> tuple[dict[str, Computation], int]:
    """What each job truly did, and how many updates were made."""
    found: dict[str, Computation] = {}
    named = NamedPolicy(policy, load(policy))
    run = simulate(trace, named, seed, inspect=lambda _, loads: found.update(loads))
    return found, run.updates


def row_of(world: World) -> Row:
    """That world under both."""
    trace = world.trace()
    seed = world.seed % 1000
    plain, _ = play(trace, PLAIN, seed)
    own, updates = play(trace, OURS, seed)
    pairs, told = pairs_of(trace, plain, own), []
    for pair in pairs:
        was, now = served(pair.plain), served(pair.own)
        if harmed(was, now, pair.target.seconds):
            times = (was.mean_s, was.p95_s, now.mean_s, now.p95_s)
            cells = ["-" if one is None else f"{1000 * one:.1f}" for one in times]
            told.append(f"{pair.name}: {' '.join(cells)}")
    busiest = busiest_ratio(trace, plain) + world.foreign_cores / (CORES * world.full_speed)
    per_min = 60.0 * updates / DURATION_S
    return Row(world.seed, round(busiest, 3), len(pairs), tuple(told), round(per_min, 1))


def _row(seed: int) -> Row:
    return row_of(drawn(seed))


def table_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """One line for the worlds with room, one for those without."""
    table: list[dict[str, object]] = []
    for title, fits in (("at most 85 % in every second", True), ("more in some second", False)):
        mine = [row for row in rows if (row.busiest_ratio <= FULL_RATIO) is fits]
        table.append(
            {
                "services and outside load need": title,
                "worlds": len(mine),
                "services": sum(row.services for row in mine),
                "worlds with a harmed service": sum(bool(row.harmed) for row in mine),
                "harmed services": sum(len(row.harmed) for row in mine),
            }
        )
    return table


def headline(rows: Sequence[Row]) -> str:
    """What the property asks for, and what came of it."""
    fits = [row for row in rows if row.busiest_ratio <= FULL_RATIO]
    open_ = [row for row in fits if row.harmed]
    reached = verdict(len(open_) <= MOST_OPEN * len(fits))
    seeds = ", ".join(f"{row.seed} ({'; '.join(row.harmed)})" for row in open_[:10])
    worlds = f"{len(open_)} of {len(fits)} worlds{f': {seeds}' if seeds else ''}"
    return (
        f"Where services and outside load stay under 85 % of the node in every second, some "
        f"service is harmed in {worlds} (asked: at most 1 in 1000): {reached}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Draw, count and save; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--worlds", type=int, default=WORLDS, help="how many")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.worlds)
    rows = in_processes(_row, seeds, chosen.processes)
    table, told = table_of(rows), headline(rows)
    if (chosen.worlds, chosen.first) == (WORLDS, FIRST_SEED):
        results.save(
            NAME,
            results.host_facts("none"),
            [],
            [asdict(row) for row in rows if row.harmed],
            title=f"{OURS} beside plain Docker, {WORLDS} drawn worlds, seeds from {FIRST_SEED} on",
            table=table,
            headlines=[told],
        )
    console = Console()
    results.show(console, {NAME: table})
    for row in rows:
        if row.harmed:
            console.print(asdict(row), soft_wrap=True, markup=False)
    console.print(f"\n{told}", markup=False, soft_wrap=True)
    return 0

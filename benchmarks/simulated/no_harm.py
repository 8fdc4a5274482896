"""No job is worse off for `adaptive` than under plain Docker: many drawn worlds, paired.

Owns the count. Both runs of a world play the same requests, and a service is judged by what they
took. Worlds in which services and outside load need over 85 % of the node in some second are
counted apart.

    python -m benchmarks run no-harm                          writes benchmarks/results/no-harm.json
    python -m benchmarks run no-harm --seeds 60 --kind hog    60 of one kind, prints alone
    python -m benchmarks run no-harm --seed 5003 --kind hog   one of them again
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.simulated.playing import in_processes
from tests.worlds.kinds import KINDS, world
from tests.worlds.played import OURS, Row, row_of

NAME = "no-harm"
FIRST_SEED, SEEDS = 10_001, 275
"""Of each kind."""
MOST_OPEN = 1 / 1000


def _row(kind: str, seed: int, policy: str) -> Row:
    began_s = time.process_time()
    row = row_of(world(kind, seed), seed, policy)
    return replace(row, took_s=round(time.process_time() - began_s, 2))


def table_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A line a kind of world."""
    return [
        {
            "kind": kind,
            "draws": len(mine),
            "fit": sum(row.fits for row in mine),
            "of these with a harmed service": sum(bool(row.harmed) for row in mine if row.fits),
            "with a slowed training or hog": sum(bool(row.slowed) for row in mine if row.fits),
            "trainings reordered": sum(bool(row.reordered) for row in mine if row.fits),
            "others with somebody harmed": sum(bool(row.worse) for row in mine if not row.fits),
            "targets": sum(row.targets for row in mine),
            "kept under plain Docker": sum(row.plain_met for row in mine),
            "kept": sum(row.own_met for row in mine),
            "updates a minute": statistics.fmean(row.updates_per_min for row in mine),
            "most updates a minute": max(row.updates_per_min for row in mine),
            "s a draw": statistics.fmean(row.took_s for row in mine),
        }
        for kind, mine in results.grouped(rows, lambda row: row.kind).items()
    ]


def headline(rows: Sequence[Row]) -> str:
    """What the property asks for, and what came of it."""
    fitting = [row for row in rows if row.fits]
    open_ = [row for row in fitting if row.worse]
    reached = verdict(len(open_) <= MOST_OPEN * len(fitting))
    return (
        "Where services and outside load stay under 85 % of the node in every second, some "
        f"job is harmed in {len(open_)} of {len(fitting)} worlds (asked: at most 1 in 1000): "
        f"{reached}"
    )


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        kind=(tuple(KINDS), "kinds of worlds"),
        seeds=(SEEDS, "how many of each kind; fewer: not saved"),
        first=(FIRST_SEED, "the first of them"),
        seed=(0, "this one alone"),
        policy=(OURS, "judged beside plain Docker"),
    )
    seeds = [chosen.seed] if chosen.seed else range(chosen.first, chosen.first + chosen.seeds)
    kinds = list(chosen.kind)
    print(f"seeds {seeds[0]} to {seeds[-1]} of {', '.join(kinds)}, {chosen.policy}")
    rows = in_processes(_row, product(kinds, seeds, (chosen.policy,)))
    for row in rows:
        if row.worse:
            apart = "" if row.fits else f", needs {row.busiest_ratio:.2f} of the node"
            print(f"--seed {row.seed} --kind {row.kind}{apart}")
            print(*(f"    {one}" for one in row.worse), sep="\n")
    whole = len(seeds) == SEEDS and kinds == list(KINDS) and chosen.policy == OURS
    tables = {"Drawn worlds under the policy beside plain Docker": table_of(rows)}
    results.finish(NAME, "none", seeds, rows, tables, [headline(rows)], whole=whole)
    return 0

"""No service is worse off for `adaptive` than under plain Docker: many drawn worlds, paired.

Owns the count. Both runs of a world play the same requests, and a service is judged by what they
took. Worlds whose services and outside load need over 85 % of the node in some second are counted
apart.

    python -m benchmarks run no-harm                writes benchmarks/results/no-harm.json
    python -m benchmarks run no-harm --seeds 100    prints alone
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.publish.results import verdict
from benchmarks.simulated.playing import in_processes, judge_seeds
from tests.worlds.harm import FULL_RATIO
from tests.worlds.harm_worlds import drawn
from tests.worlds.played import Row, row_of

NAME = "no-harm"
SEEDS = range(10_001, 12_001)
MOST_OPEN = 1 / 1000


def _row(seed: int) -> Row:
    return row_of(drawn(seed))


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
    def rows_of(seeds: Sequence[int]) -> list[Row]:
        return in_processes(_row, ((seed,) for seed in seeds))

    return judge_seeds(
        NAME, __doc__, arguments, SEEDS, rows_of, lambda _: {}, lambda rows: [headline(rows)]
    )

"""No service is worse off for `adaptive` than under plain Docker: many drawn worlds, paired.

Owns the count. Both runs of a world play the same requests, and a service is judged by what they
took. Worlds whose services and outside load need over 85 % of the node in some second are counted
apart.

    python -m benchmarks run no-harm                writes benchmarks/results/no-harm.json
    python -m benchmarks run no-harm --worlds 100   prints alone
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.simulated.playing import in_processes
from tests.worlds.harm import FULL_RATIO
from tests.worlds.harm_worlds import drawn
from tests.worlds.played import OURS, Row, row_of

NAME = "no-harm"
WORLDS, FIRST_SEED = 2000, 10_001
MOST_OPEN = 1 / 1000


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
    chosen = options(__doc__, arguments, worlds=(WORLDS, "how many; fewer: not saved"))
    rows = in_processes(_row, ((FIRST_SEED + number,) for number in range(chosen.worlds)))
    title = f"{OURS} beside plain Docker, {WORLDS} drawn worlds, seeds from {FIRST_SEED} on"
    harmed, whole = [row for row in rows if row.harmed], chosen.worlds == WORLDS
    results.finish(NAME, "none", [], harmed, {title: table_of(rows)}, [headline(rows)], whole=whole)
    return 0

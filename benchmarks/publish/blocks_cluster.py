"""Results of several hosts as Markdown: simulated worlds, real hosts."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.publish.results import grouped, markdown
from benchmarks.simulated.cluster import ENDS, LATER, PLACEBO, PLAIN, STAYS
from dlsched.simulation.cluster.clairvoyant import CLAIRVOYANT
from dlsched.simulation.cluster.scoring import Contender

Row = Mapping[str, Any]

BEST = Contender("adaptive", ENDS)
_ALONE = "moves alone: "
SHOWN = {
    PLAIN.name: "`spread`, plain Docker",
    Contender("specon", "none").name: "`specon`, plain Docker",
    Contender("spread", ENDS).name: "`spread`, `adaptive` on the nodes",
    STAYS.name: "`adaptive` without moves, `adaptive` on the nodes",
    BEST.name: "`adaptive`, `adaptive` on the nodes",
    f"{_ALONE}{Contender('specon', ENDS).name}": "moves alone: `specon`",
    f"{_ALONE}{BEST.name}": "moves alone: `adaptive`",
    f"{_ALONE}{Contender(PLACEBO, ENDS).name}": "moves alone: random ones",
    f"{LATER}: {STAYS.name}": "no moves: one arrival a second later",
}
"""What is shown of a simulated world, in words; the file has more."""


def by_world(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """The rows of each seed, by world and contender."""
    worlds = grouped(rows, lambda row: row["scenario"]).items()
    return {name: grouped(mine, lambda row: row["contender"]) for name, mine in worlds}


def mean(rows: Sequence[Row], part: str) -> float:
    return statistics.fmean(row[part] for row in rows)


def worlds(saved: Mapping[str, Any]) -> str:
    """A table a world, and how far each figure is."""
    parts = []
    for world, cells in by_world(saved["rows"]).items():
        table = [_cells(words, cells[name]) for name, words in SHOWN.items() if name in cells]
        if CLAIRVOYANT in cells:
            table.append(_clairvoyant_cells(cells[CLAIRVOYANT]))
        parts.append(f"**{world}**, {len(saved['seeds'])} seeds\n\n{markdown(table)}")
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in saved["headlines"])])


def hosts(saved: Mapping[str, Any]) -> str:
    parts = []
    for contender, rows in by_world(saved["rows"])[saved["rows"][0]["scenario"]].items():
        pauses_s = [row["median_pause_s"] for row in rows if row["median_pause_s"] is not None]
        parts.append(
            {
                **_cells(f"`{contender}`", rows),
                "median pause, s": f"{statistics.median(pauses_s):.1f}" if pauses_s else "-",
                "steps lost": str(sum(row["lost_steps"] for row in rows)),
                "ran twice": str(sum(row["twice"] for row in rows)),
            }
        )
    lines = "\n".join(f"- {line}" for line in saved["headlines"])
    return f"{len(saved['seeds'])} seeds:\n\n{markdown(parts)}\n\n{lines}"


def _clairvoyant_cells(rows: Sequence[Row]) -> dict[str, str]:
    """Two figures of different worth: a good mean, and a makespan that no schedule beats."""
    return {
        "policies": "clairvoyant (its mean is no proven bound)",
        "mean (worst seed)": f"{mean(rows, 'mean_ratio'):.3f}",
        "makespan": f"{mean(rows, 'makespan_ratio'):.3f}",
    }


def _cells(name: str, rows: Sequence[Row]) -> dict[str, str]:
    worst = max(rows, key=lambda row: row["worst_ratio"])
    return {
        "policies": name,
        "mean (worst seed)": (
            f"{mean(rows, 'mean_ratio'):.3f} ({max(row['mean_ratio'] for row in rows):.3f})"
        ),
        "makespan": f"{mean(rows, 'makespan_ratio'):.3f}",
        "median, p95, s": f"{mean(rows, 'median_s'):.0f}, {mean(rows, 'p95_s'):.0f}",
        "moves (failed)": f"{mean(rows, 'moves'):.1f} ({mean(rows, 'failed_moves'):.1f})",
        "jobs over 10 % slower": f"{mean(rows, 'slower'):.1f}",
        "worst job": f"{worst['worst_ratio']:.2f}",
    }

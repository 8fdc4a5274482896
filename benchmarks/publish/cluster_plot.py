"""The picture of several hosts: mean completion and makespan of 50 trainings, by policies.

python -m benchmarks.publish.cluster_plot
    draws cluster-simulated.png from cluster-simulated.json
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.publish import results
from benchmarks.publish.blocks_cluster import BEST, SHOWN, by_world, mean
from benchmarks.simulated.cluster import ENDS, NAME, PLAIN, STAYS
from dlsched.simulation.cluster.scoring import Contender

PICTURE = results.FOLDER / f"{NAME}.png"
_DRAWN = (Contender("specon", "none"), Contender("spread", ENDS), STAYS, BEST)
_PARTS = {"mean_ratio": "mean completion", "makespan_ratio": "until all have ended"}


def draw(saved: Mapping[str, Any], path: Path = PICTURE) -> None:
    """One panel a measure, one group of bars a world; 1 is plain Docker with Swarm's placement."""
    worlds = by_world(saved["rows"])
    figure, axes = plt.subplots(
        1, len(_PARTS), figsize=(11.0, 4.2), sharey=True, layout="constrained"
    )
    for axis, (part, words) in zip(axes, _PARTS.items(), strict=True):
        _panel(axis, worlds, part)
        axis.set_title(words, fontsize=10)
    axes[0].set_ylabel(f"of {SHOWN[PLAIN.name].replace('`', '')}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=len(_DRAWN))
    figure.suptitle(
        f"50 simulated trainings on four nodes, {len(saved['seeds'])} seeds (lower is better)"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axis: Axes, worlds: Mapping[str, Mapping[str, list[Any]]], part: str) -> None:
    width = 0.8 / len(_DRAWN)
    for place, contender in enumerate(_DRAWN):
        heights = [mean(cells[contender.name], part) for cells in worlds.values()]
        at = [number + width * (place - (len(_DRAWN) - 1) / 2) for number in range(len(worlds))]
        axis.bar(at, heights, width, label=SHOWN[contender.name].replace("`", ""))
    axis.axhline(1, color="black", linewidth=0.8)
    names = [name.removeprefix("cluster-50-").replace("-", " ") for name in worlds]
    axis.set_xticks(range(len(worlds)), names)
    axis.grid(alpha=0.3, axis="y")


if __name__ == "__main__":
    saved = results.load(NAME)
    if saved is None:
        sys.exit(f"no {NAME}.json: python -m benchmarks run {NAME} writes it")
    draw(saved)

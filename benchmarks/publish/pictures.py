"""Pictures of results. It must not judge: what is drawn was judged by whoever measured it.

python -m benchmarks.publish.pictures      draws cluster-simulated.png from its result file
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.publish import results
from benchmarks.publish.blocks_cluster import BEST, SHOWN, by_world, mean
from benchmarks.real import demo
from benchmarks.simulated.cluster import ENDS, PLAIN, STAYS
from dlsched.simulation.cluster.scoring import Contender

_TICKS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
_DRAWN = (Contender("specon", "none"), Contender("spread", ENDS), STAYS, BEST)
_PARTS = {"mean_ratio": "mean completion", "makespan_ratio": "until all have ended"}


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_scene(
    phases: Sequence[demo.Phase],
    requests: demo.Requests,
    rows: Sequence[demo.Row],
    path: Path,
) -> None:
    """A panel a service: a dot a request by time, the p95 of both phases as lines, the target."""
    figure, axes = plt.subplots(
        len(requests), 1, figsize=(8.0, 5.2), sharex=True, squeeze=False, layout="constrained"
    )
    start_s = phases[0].began_s
    for axis, (name, found) in zip(axes[:, 0], requests.items(), strict=True):
        seen = [(due_s - start_s, 1000 * s) for due_s, s in found if s is not None]
        axis.plot(*zip(*seen, strict=True), ".", markersize=2, color="0.6", label="a request")
        for phase, colour in zip(phases, ("black", "C0"), strict=True):
            (row,) = (one for one in rows if (one.container, one.phase) == (name, phase.name))
            if row.p95_ms is None:
                continue
            span_s = [phase.began_s - start_s, phase.ended_s - start_s]
            label = f"p95, {phase.name}: {row.p95_ms:.0f} ms"
            axis.plot(span_s, [row.p95_ms] * 2, color=colour, linewidth=2.5, label=label)
        axis.axvspan(*(s - start_s for s in (phases[0].ended_s, phases[1].began_s)), color="0.92")
        axis.set_title(name, fontsize=9)
        axis.set_ylabel("milliseconds")
        axis.set_yscale("log")
        limits = axis.get_ylim()
        axis.set_yticks(_TICKS_MS, [f"{tick}" for tick in _TICKS_MS])
        axis.set_yticks([], minor=True)
        axis.set_ylim(limits)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="upper right")
    axes[-1][0].set_xlabel("seconds; grey: adopted with one command each, while all run")
    figure.suptitle(
        "two services beside two neighbours of two busy processes each, on two cores", fontsize=10
    )
    _save(figure, path)


def draw_cluster(saved: Mapping[str, Any], path: Path = results.CLUSTER_PICTURE) -> None:
    """One panel a measure, one group of bars a world; 1 is plain Docker with Swarm's placement."""
    worlds = by_world(saved["rows"])
    figure, axes = plt.subplots(
        1, len(_PARTS), figsize=(11.0, 4.2), sharey=True, layout="constrained"
    )
    for axis, (part, words) in zip(axes, _PARTS.items(), strict=True):
        _worlds(axis, worlds, part)
        axis.set_title(words, fontsize=10)
    axes[0].set_ylabel(f"of {SHOWN[PLAIN.name].replace('`', '')}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=len(_DRAWN))
    figure.suptitle(
        f"50 simulated trainings on four nodes, {len(saved['seeds'])} seeds (lower is better)"
    )
    _save(figure, path)


def _worlds(axis: Axes, worlds: Mapping[str, Mapping[str, list[Any]]], part: str) -> None:
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
    saved = results.load("cluster-simulated")
    if saved is None:
        sys.exit("no cluster-simulated.json: python -m benchmarks run cluster-simulated writes it")
    draw_cluster(saved)

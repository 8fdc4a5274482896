"""The picture of real traffic: each service's mean and p95 under plain Docker and under dlsched.

It must not judge: the rows come from `benchmarks.real.http_services`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.real.http_services import POLICIES, Measured
from dlsched.simulation.scoring import PLAIN

_TICKS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def draw(found: Sequence[Measured], path: Path) -> None:
    """One line a service and policy, from its mean to its p95; the target as an upright stroke."""
    services = list(dict.fromkeys(row.service for row in found))
    figure, axis = plt.subplots(figsize=(8.0, 1.6 + 0.55 * len(services)), layout="constrained")
    for place, policy in enumerate(POLICIES):
        rows = [row for row in found if row.policy == policy]
        _lines(axis, rows, 0.16 * (2 * place - 1), "black" if policy == PLAIN else "C0")
    for place, service in enumerate(services):
        target_ms = next(row.target_ms for row in found if row.service == service)
        label = None if place else "target"
        axis.plot([target_ms] * 2, [place - 0.4, place + 0.4], color="C3", label=label)
    axis.set_yticks(range(len(services)), services)
    axis.invert_yaxis()
    axis.set_xscale("log")
    limits = axis.get_xlim()
    axis.set_xticks(_TICKS_MS, [f"{tick}" for tick in _TICKS_MS])
    axis.set_xlim(limits)  # ticks beyond what is shown would widen it
    axis.set_xlabel("milliseconds from the moment a request was due: mean (dot) and p95 (stroke)")
    axis.grid(alpha=0.3, axis="x")
    axis.legend(fontsize=8, loc="best")
    cpu = ", ".join(
        f"{_shown(policy)}: {next(row.trainings_core_s for row in found if row.policy == policy):g}"
        for policy in POLICIES
    )
    axis.set_title(
        f"{len(services)} HTTP services under Poisson clients beside a training\n"
        f"CPU seconds of the training, {cpu}",
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(axis: Axes, rows: Sequence[Measured], offset: float, colour: str) -> None:
    for place, row in enumerate(rows):
        if row.mean_ms is None or row.p95_ms is None:
            continue
        at = place + offset
        axis.plot([row.mean_ms, row.p95_ms], [at, at], color=colour, linewidth=1.4)
        axis.plot(
            [row.mean_ms], [at], "o", markersize=5, color=colour,
            label=None if place else _shown(row.policy),
        )  # fmt: skip
        axis.plot([row.p95_ms], [at], "|", markersize=9, color=colour)


def _shown(policy: str) -> str:
    return "plain Docker" if policy == PLAIN else policy

"""The picture: every model's latency over its target, by time and policy."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

from benchmarks.judge.services import BAND_RATIO, Series, satisfied
from benchmarks.real.comparison import Comparison, PolicyRun
from dlsched.estimate.sketch import merge

_SMOOTH_S = 5.0


def draw(comparison: Comparison, path: Path) -> None:
    """One panel a policy, one line a model, the satisfied band shaded; logarithmic upright."""
    runs = comparison.runs
    figure, axes = plt.subplots(
        1, len(runs), figsize=(4.6 * len(runs), 4.2), sharey=True, squeeze=False
    )
    for axis, run in zip(axes[0], runs, strict=True):
        _panel(axis, comparison, run)
    axes[0][0].set_ylabel("latency / target (5 s means)")
    axes[0][-1].legend(fontsize=7, ncols=2, loc="upper right")
    figure.suptitle(
        f"{len(comparison.set)} models, demand {comparison.plan.demand_ratio:.0%} of "
        f"{comparison.capacity_cores:.2f} cores, seed {comparison.plan.seed}"
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axis: plt.Axes, comparison: Comparison, run: PolicyRun) -> None:
    axis.axhspan(1 - BAND_RATIO, 1 + BAND_RATIO, color="0.85", zorder=0)
    axis.axhline(1, color="0.5", linewidth=0.8)
    for job, target_s in comparison.targets.items():
        times, ratios = _smooth(run.series[job], target_s)
        axis.plot(times, ratios, linewidth=1.2, label=job)
    band, slo = satisfied(run.judged)
    count = len(run.judged)
    name = run.policy.replace("?", "\n").replace("&", ", ")
    axis.set_title(f"{name}\n{band} of {count} in band, {slo} not slower", fontsize=9)
    axis.set_xlabel("seconds since the policy took over")
    axis.set_yscale("log")
    axis.set_yticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
    axis.set_ylim(0.1, 10)
    axis.grid(alpha=0.3)


def _smooth(series: Series, target_s: float) -> tuple[list[float], list[float]]:
    times: list[float] = []
    ratios: list[float] = []
    for at_s, _ in series:
        some = merge(*(sketch for t, sketch in series if at_s - _SMOOTH_S < t <= at_s))
        if some.mean_s is not None:
            times.append(at_s)
            ratios.append(some.mean_s / target_s)
    return times, ratios

"""Plots simulated runs beside plain Docker and the clairvoyant's bounds. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.ticker import MaxNLocator

from dlsched.simulation.scoring import PLAIN, RunResult, alone_s, optima, works_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dlsched.simulation.node.workloads import Trace

_MANY = 24
"""More trainings than this are drawn as a distribution, not a line each."""

_PLAIN_COLOUR = "#8c8c8c"
# Okabe and Ito's colours, distinct for any colour vision.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")

_GOALS = {
    "tier1": "the first tier",
    "tier2": "the second tier",
    "completion": "the end",
}
_METRICS = {"tier1": "tier1_mean_s", "tier2": "tier2_mean_s", "completion": "jct_mean_s"}


def draw(trace: Trace, runs: Sequence[RunResult], file: Path) -> None:
    """Draw the runs into the file, in the format of its suffix; of a policy, the means over seeds.

    For trainings, a panel for each goal: each job's time under each policy and alone on the node,
    or for many jobs the distribution. For services, the fraction of time within 10 % of the target,
    and not above it.
    """
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    colours = _colours(tuple(dict.fromkeys(run.policy for run in runs)))
    goals = [goal for goal in _GOALS if any(run.times(goal) for run in runs)]
    trainings = sum("completion" in job.goals for job in runs[0].jobs)
    services = sum(job.satisfied_ratio is not None for job in runs[0].jobs)
    many = trainings > _MANY
    heights = {
        "trainings": 3.9 if many else 1.5 + (trainings + 1) * (0.15 + 0.11 * len(colours)),
        "services": 3.9,
    }
    rows = [row for row, there in (("trainings", goals), ("services", services)) if there]
    sizes = [heights[row] for row in rows] or [1.0]
    best, alone = optima(trace), alone_s(works_of(trace), trace.node.cores)
    with mpl.rc_context(_STYLE):
        figure = plt.figure(figsize=(12.0, 0.5 + sum(sizes)), layout="constrained")
        parts = figure.subfigures(len(sizes), 1, squeeze=False, height_ratios=sizes)[:, 0]
        for part, row in zip(parts, rows, strict=False):
            if row == "services":
                _services(part.subplots(1, 2, sharey=True), runs, colours, best)
                continue
            axes = part.subplots(1, len(goals), sharey=True, squeeze=False)[0]
            for axis, goal in zip(axes, goals, strict=True):
                times = [time_s for run in runs for time_s in run.times(goal).values()]
                unit = _unit(max(times))
                optimum_s = best[_METRICS[goal]]
                if many:
                    _parts_by_time(axis, goal, runs, colours, optimum_s, unit)
                else:
                    _times_by_job(axis, goal, runs, colours, alone[goal], optimum_s, unit)
                axis.set_title(f"time to {_GOALS[goal]}")
                axis.set_xlim(left=0.0)
                axis.set_xlabel(f"{unit[1]} since the job's arrival")
            if many:
                axes[0].set_ylabel("trainings that got there (%)")
            part.legend(*_unique(axes), loc="outside lower center", ncols=len(colours) + 2)
        seeds = len({run.seed for run in runs})
        figure.suptitle(
            f"{trace.name}: {len(trace.jobs)} jobs on {trace.node.cores:g} cores"
            f"{f', means of {seeds} seeds' if seeds > 1 else ''}",
            fontweight="bold",
        )
        figure.savefig(file)
        plt.close(figure)


_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "legend.frameon": False,
    "savefig.dpi": 130,
    "svg.hashsalt": "dlsched",
}


def _colours(policies: Sequence[str]) -> dict[str, str]:
    others = [policy for policy in policies if policy != PLAIN]
    chosen = {policy: _COLOURS[place % len(_COLOURS)] for place, policy in enumerate(others)}
    return {PLAIN: _PLAIN_COLOUR, **chosen}


def _shown(policy: str) -> str:
    return "plain Docker" if policy == PLAIN else policy


def _unit(longest_s: float) -> tuple[float, str]:
    if longest_s > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if longest_s > 180 else (1.0, "seconds")


def _unique(axes: Sequence[Axes]) -> tuple[list[Any], list[str]]:
    """The legend entries of all panels, once each."""
    found = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    return list(found.values()), list(found)


def _times_by_job(
    axis: Axes,
    goal: str,
    runs: Sequence[RunResult],
    colours: Mapping[str, str],
    alone: Mapping[str, float],
    optimum_s: float,
    unit: tuple[float, str],
) -> None:
    """A line for each job and the mean, with a mark for each policy and for the best possible.
    Hollow mark: not reached (in every seed) within the trace."""
    names = [job.name for job in sorted(runs[0].jobs, key=lambda job: job.arrived_s) if job.goals]
    lines = {name: float(place) for place, name in enumerate(names)}
    mean_line = len(names) + 0.4
    step = 0.8 / len(colours)
    for place, (policy, colour) in enumerate(colours.items()):
        own = [run for run in runs if run.policy == policy]
        offset = (place - (len(colours) - 1) / 2) * step
        jobs = {
            name: [job for run in own for job in run.jobs if job.name == name] for name in alone
        }
        times = {name: fmean(run.times(goal)[name] for run in own) for name in alone}
        mean_s = fmean(times.values())
        axis.axhspan(mean_line - 0.5, mean_line + 0.5, color="#f4f4f4", zorder=0)
        for line, time_s, reached in [
            *(
                (
                    lines[name],
                    times[name],
                    all(getattr(job, f"{goal}_s") is not None for job in jobs[name]),
                )
                for name in alone
            ),
            (mean_line, mean_s, True),
        ]:
            mean = line == mean_line
            axis.plot(
                [time_s / unit[0]],
                [line + offset],
                marker="D" if mean else "o",
                markersize=6.5 if mean else 5.5,
                color=colour,
                markerfacecolor=colour if reached else "white",
                linestyle="none",
                label=_shown(policy) if line == 0.0 else None,
            )
    marks = [*((alone[name], lines[name]) for name in alone), (optimum_s, mean_line)]
    for place, (time_s, line) in enumerate(marks):
        axis.plot(
            [time_s / unit[0]] * 2,
            [line - 0.42, line + 0.42],
            color="black",
            linewidth=1.6,
            label=None if place else "alone on the node; of the mean, the best order known",
        )
    axis.set_yticks([*lines.values(), mean_line], [*names, "mean"])
    axis.set_ylim(mean_line + 0.6, -0.6)
    axis.grid(visible=False, axis="y")


def _parts_by_time(
    axis: Axes,
    goal: str,
    runs: Sequence[RunResult],
    colours: Mapping[str, str],
    optimum_s: float,
    unit: tuple[float, str],
) -> None:
    """The fraction of jobs, over all seeds, that reached the goal by a time; and the mean."""
    longest_s = max(time_s for run in runs for time_s in run.times(goal).values())
    for policy, colour in colours.items():
        own = [run for run in runs if run.policy == policy]
        every = [job for run in own for job in run.jobs if goal in job.goals]
        reached = sorted(
            at_s / unit[0] for job in every if (at_s := getattr(job, f"{goal}_s")) is not None
        )
        parts = [100.0 * (place + 1) / len(every) for place in range(len(reached))]
        axis.step(
            [0.0, *reached, longest_s / unit[0]],
            [0.0, *parts, parts[-1] if parts else 0.0],
            where="post",
            color=colour,
            linewidth=2.4 if policy == PLAIN else 1.8,
            label=_shown(policy),
        )
        mean_s = fmean(time_s for run in own for time_s in run.times(goal).values())
        axis.plot(
            [mean_s / unit[0]], [0.0], marker="D", markersize=7, color=colour, clip_on=False,
            zorder=5, linestyle="none",
        )  # fmt: skip
    axis.axvline(
        optimum_s / unit[0], color="black", linestyle=(0, (4, 3)), linewidth=1.1,
        label="mean (diamonds) by the best order known",
    )  # fmt: skip
    axis.set_ylim(0.0, 102.0)


def _services(
    axes: Sequence[Axes],
    runs: Sequence[RunResult],
    colours: Mapping[str, str],
    best: Mapping[str, float],
) -> None:
    """Each service's fraction of time at the target; jobs in plain Docker's order."""
    titles = {"satisfied": "within 10 % of the target", "met": "not slower than the target"}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for policy, colour in colours.items():
            parts = _means(runs, policy, f"{key}_ratio")
            ranked = sorted(parts, reverse=True)
            # Weighted by each job's time, as in the metric, so that the bound applies.
            own = [run.metrics()[f"{key}_mean_ratio"] for run in runs if run.policy == policy]
            axis.step(
                range(len(ranked) + 1),
                [*(100.0 * part for part in ranked), 100.0 * ranked[-1]],
                where="post",
                color=colour,
                linewidth=2.4 if policy == PLAIN else 1.8,
                label=f"{_shown(policy)} (mean {100.0 * fmean(own):.0f} %)",
            )
        optimum = best.get(f"{key}_mean_ratio")
        if optimum is not None:
            axis.axhline(
                100.0 * optimum, color="black", linestyle=(0, (4, 3)), linewidth=1.1,
                label=f"no mean is above ({100.0 * optimum:.0f} %)",
            )  # fmt: skip
        axis.set_title(f"services {title}")
        axis.set_xlabel("services, the best kept first")
        axis.set_ylim(0.0, 102.0)
        axis.set_xlim(left=0.0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=2)
    axes[0].set_ylabel("part of their time (%)")


def _means(runs: Sequence[RunResult], policy: str, part: str) -> list[float]:
    own = [run for run in runs if run.policy == policy]
    columns = zip(*(run.jobs for run in own), strict=True)
    found = [[getattr(job, part) for job in jobs] for jobs in columns]
    return [sum(values) / len(values) for values in found if values[0] is not None]

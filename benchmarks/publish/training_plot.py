"""The picture of a training schedule: each job's metric by time since its arrival, a line a policy.

It must not judge: points and tiers come from `benchmarks.judge.trainings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from benchmarks.judge.trainings import Measured
from benchmarks.real.training_set import Schedule, TrainingJob
from dlsched.simulation.scoring import PLAIN


def draw(schedule: Schedule, runs: Sequence[Measured], path: Path) -> None:
    """One panel a job, both tiers as dashed lines; of the first seed that all policies ran.

    Without one, of the first seed.
    """
    seeds: dict[str, set[int]] = {}
    for one in runs:
        seeds.setdefault(one.run.policy, set()).add(one.run.seed)
    seed = min(set.intersection(*seeds.values()) or set.union(*seeds.values()))
    shown = [one for one in runs if one.run.seed == seed]
    jobs = schedule.jobs
    figure, axes = plt.subplots(
        1, len(jobs), figsize=(4.2 * len(jobs), 4.2), squeeze=False, layout="constrained"
    )
    for axis, job in zip(axes[0], jobs, strict=True):
        _panel(axis, job, shown)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(
        f"{schedule.name}, seed {seed}: dots mark where a tier counts as reached, "
        "dashed lines are the tiers"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _panel(axis: Axes, job: TrainingJob, runs: Sequence[Measured]) -> None:
    for tier in (job.model.deliver, job.model.finish):
        axis.axhline(tier, color="0.5", linewidth=0.8, linestyle="--")
    for index, one in enumerate(runs):
        course = one.courses[job.name]
        plain = one.run.policy == PLAIN
        colour = "black" if plain else f"C{index}"
        axis.plot(
            [at_s - course.arrived_s for at_s, _ in course.points],
            [value for _, value in course.points],
            linewidth=2.0 if plain else 1.1,
            color=colour,
            label="none (plain Docker)" if plain else one.run.policy,
        )
        for tier, at_s in zip((job.model.deliver, job.model.finish), course.tiers_s, strict=True):
            if at_s is not None:
                axis.plot([at_s - course.arrived_s], [tier], "o", markersize=4, color=colour)
    axis.set_title(f"{job.name}, arrives at {job.arrives_s:g} s", fontsize=9)
    axis.set_xlabel("seconds since it arrived")
    axis.set_ylabel(job.model.metric)
    axis.grid(alpha=0.3)

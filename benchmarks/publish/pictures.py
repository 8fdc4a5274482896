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

from benchmarks.judge import Measured, Series, arrived, satisfied
from benchmarks.publish import results
from benchmarks.publish.blocks_cluster import BEST, SHOWN, by_world, mean
from benchmarks.real import demo, http_services
from benchmarks.real.comparison import Comparison
from benchmarks.real.kept import KeptServices
from benchmarks.real.training_set import Schedule, TrainingJob
from benchmarks.simulated.cluster import ENDS, PLAIN, STAYS
from dlsched.estimate.sketch import merge
from dlsched.model.spec import BAND_RATIO
from dlsched.simulation.cluster.scoring import Contender
from dlsched.simulation.scoring import PLAIN as PLAIN_DOCKER

_SMOOTH_S = 5.0
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


def draw_models(comparison: Comparison, path: Path) -> None:
    """Each model's latency over its target, by time: a panel a policy, the band shaded."""
    runs = comparison.runs
    figure, axes = plt.subplots(
        1, len(runs), figsize=(4.6 * len(runs), 4.2), sharey=True, squeeze=False
    )
    for axis, run in zip(axes[0], runs, strict=True):
        _policy(axis, comparison, run)
    axes[0][0].set_ylabel("latency / target (5 s means)")
    axes[0][-1].legend(fontsize=7, ncols=2, loc="upper right")
    figure.suptitle(
        f"{len(comparison.set)} models, demand {comparison.plan.demand_ratio:.0%} of "
        f"{comparison.capacity_cores:.2f} cores, seed {comparison.plan.seed}"
    )
    figure.tight_layout()
    _save(figure, path)


def _policy(axis: Axes, comparison: Comparison, run: KeptServices) -> None:
    axis.axhspan(1 - BAND_RATIO, 1 + BAND_RATIO, color="0.85", zorder=0)
    axis.axhline(1, color="0.5", linewidth=0.8)
    series = arrived(run.reports())
    for job, target_s in comparison.targets.items():
        times, ratios = _smooth(series[job], target_s)
        axis.plot(times, ratios, linewidth=1.2, label=job)
    judged = run.judged()
    band, slo = satisfied(judged)
    count = len(judged)
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


def draw_traffic(found: Sequence[http_services.Measured], path: Path) -> None:
    """One line a service and policy, from its mean to its p95; the target as an upright stroke."""
    services = list(dict.fromkeys(row.service for row in found))
    figure, axis = plt.subplots(figsize=(8.0, 1.6 + 0.55 * len(services)), layout="constrained")
    for place, policy in enumerate(http_services.POLICIES):
        rows = [row for row in found if row.policy == policy]
        _lines(axis, rows, 0.16 * (2 * place - 1), "black" if policy == PLAIN_DOCKER else "C0")
    for place, service in enumerate(services):
        target_ms = next(row.target_ms or 0.0 for row in found if row.service == service)
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
        for policy in http_services.POLICIES
    )
    axis.set_title(
        f"{len(services)} HTTP services under Poisson clients beside a training\n"
        f"CPU seconds of the training, {cpu}",
        fontsize=9,
    )
    _save(figure, path)


def _lines(axis: Axes, rows: Sequence[http_services.Measured], offset: float, colour: str) -> None:
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
    return "plain Docker" if policy == PLAIN_DOCKER else policy


def draw_trainings(schedule: Schedule, runs: Sequence[Measured], path: Path) -> None:
    """Each job's metric by time since its arrival: a panel a job, a line a policy, both tiers as
    dashed lines; of the first seed that all policies ran. Without one, of the first seed."""
    by_policy = results.grouped(runs, lambda one: one.run.policy).values()
    seeds = [{one.run.seed for one in mine} for mine in by_policy]
    seed = min(set.intersection(*seeds) or set.union(*seeds))
    shown = [one for one in runs if one.run.seed == seed]
    jobs = schedule.jobs
    figure, axes = plt.subplots(
        1, len(jobs), figsize=(4.2 * len(jobs), 4.2), squeeze=False, layout="constrained"
    )
    for axis, job in zip(axes[0], jobs, strict=True):
        _training(axis, job, shown)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(
        f"{schedule.name}, seed {seed}: dots mark where a tier counts as reached, "
        "dashed lines are the tiers"
    )
    _save(figure, path)


def _training(axis: Axes, job: TrainingJob, runs: Sequence[Measured]) -> None:
    for tier in (job.model.deliver, job.model.finish):
        axis.axhline(tier, color="0.5", linewidth=0.8, linestyle="--")
    for index, one in enumerate(runs):
        course = one.courses[job.name]
        plain = one.run.policy == PLAIN_DOCKER
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

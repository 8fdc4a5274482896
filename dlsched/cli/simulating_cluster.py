"""The part of `simulate` that runs a trace on several nodes."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from dlsched.cli.layout import aligned
from dlsched.cli.output import print_json, print_text, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlsched.simulation.cluster.clairvoyant import ClairvoyantScore
    from dlsched.simulation.cluster.run import ClusterRun
    from dlsched.simulation.cluster.scoring import ClusterScore, Contender
    from dlsched.simulation.trace import Trace


def simulate_on_nodes(
    trace: Trace,
    nodes: int | None,
    cluster: str,
    policy: str,
    compare: str,
    seeds: int,
    no_moves: bool,
    output: str,
) -> None:
    from dlsched.simulation.cluster.clairvoyant import clairvoyant_scores
    from dlsched.simulation.cluster.run import with_nodes
    from dlsched.simulation.cluster.scoring import compare_clusters
    from dlsched.simulation.node.workloads import TrainingLoad

    if trace.nodes and nodes not in (None, len(trace.nodes)):
        raise click.BadParameter(f"the trace has {len(trace.nodes)} nodes", param_hint="--nodes")
    if not trace.nodes:
        if nodes is None:
            raise click.BadParameter("the trace has one node: say how many", param_hint="--nodes")
        trace = with_nodes(trace, nodes)
    if not any(isinstance(job.load, TrainingLoad) for job in trace.jobs):
        raise click.BadParameter("it has no training, whose end would count", param_hint="TRACE")
    contenders = _contenders(cluster, policy, compare, no_moves)
    scores, runs = compare_clusters(trace, contenders, range(1, seeds + 1))
    for run in runs:
        for alarm in run.alarms:
            say(f"{run.cluster}+{run.policy}, seed {run.seed}: {alarm}")
    _say_unfinished(scores, runs)
    first = [one for one in scores if one.contender == contenders[0].name]
    best = clairvoyant_scores(trace, first)
    if output == "json":
        print_json(
            {
                "rows": [asdict(one) for one in scores],
                "clairvoyant": [asdict(one) for one in best],
                "runs": [asdict(one) for one in runs],
            }
        )
        return
    print_text(_table(scores, best))
    print_text(f"\n{_CLAIRVOYANT}")


def _say_unfinished(scores: Sequence[ClusterScore], runs: Sequence[ClusterRun]) -> None:
    """Say of each contender how many trainings ended, where not all did."""
    for name in dict.fromkeys(one.contender for one in scores):
        own = [run for one, run in zip(scores, runs, strict=True) if one.contender == name]
        ends = [job.completion_s for run in own for job in run.jobs if job.kind == "training"]
        ended = len(ends) - ends.count(None)
        if ended < len(ends):
            say(f"{name}: {ended} of {len(ends)} trainings ended before the trace did")


def _contenders(cluster: str, policy: str, compare: str, no_moves: bool) -> list[Contender]:
    """Those to compare with first, as the first of all is what the others are measured by."""
    from dlsched.simulation.cluster.scoring import Contender

    names = [name for name in compare.split(",") if name]
    found = [Contender(cluster, policy, moves=False)] if no_moves else []
    for name in (*names, cluster):
        of_cluster, _, of_nodes = name.partition("+")
        found.append(Contender(of_cluster, of_nodes or policy))
    return list(dict.fromkeys(found))


_CLAIRVOYANT = (
    "clairvoyant knows all work in advance. No schedule has a smaller makespan, unless jobs weigh "
    "more than by default beside a host's other work; its mean is a strong schedule, not a proven "
    "bound."
)


def _table(scores: Sequence[ClusterScore], best: Sequence[ClairvoyantScore]) -> str:
    """One line for each contender, as means over the seeds; the worst of all seeds. The last line
    is the clairvoyant's."""
    lines: list[Sequence[str]] = [
        ("policies", "mean s", "median s", "p95 s", "makespan s", "mean", "makespan", "moves",
         "failed", "slower", "worst"),
    ]  # fmt: skip
    for name in dict.fromkeys(one.contender for one in scores):
        own = [one for one in scores if one.contender == name]
        worst = max(own, key=lambda one: one.worst_ratio)
        lines.append(
            (
                name,
                *(_mean([getattr(one, part) for one in own], ".1f") for part in _TIMES),
                *(_mean([getattr(one, part) for one in own], ".3f") for part in _RATIOS),
                *(_mean([getattr(one, part) for one in own], ".1f") for part in _COUNTS),
                f"{worst.worst_ratio:.2f} {worst.worst}",
            )
        )
    lines.append(
        (
            best[0].contender,
            _mean([one.mean_s for one in best], ".1f"),
            *("-", "-"),
            _mean([one.makespan_s for one in best], ".1f"),
            *(_mean([getattr(one, part) for one in best], ".3f") for part in _RATIOS),
            *("-", "-", "-", "-"),
        )
    )
    return aligned(lines, left=1)


_TIMES = ("mean_s", "median_s", "p95_s", "makespan_s")
_RATIOS = ("mean_ratio", "makespan_ratio")
_COUNTS = ("moves", "failed_moves", "slower")


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(statistics.fmean(known), form) if len(known) == len(values) else "-"

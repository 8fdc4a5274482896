"""The command `simulate`, which runs traces on one node or several."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options
from dlsched.cli.output import print_json, print_text, say
from dlsched.cli.pages.layout import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlsched.simulation.cluster.clairvoyant import ClairvoyantScore
    from dlsched.simulation.cluster.run import ClusterRun
    from dlsched.simulation.cluster.scoring import ClusterScore, Contender
    from dlsched.simulation.scoring import Row, RunResult
    from dlsched.simulation.trace import Trace

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Run a trace under policies, in simulated time.")
@click.argument("trace", type=_FILE, metavar="TRACE")
@click.option("--policy", "-p", help="The policy to run; of every node with --cluster.")
@click.option("--compare", metavar="NAME,NAME", default="", help="Policies to compare it with.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Number of seeds to run.",
)
@click.option("--cluster", metavar="NAME", help="Run on several nodes, under this policy.")
@click.option(
    "--nodes", type=click.IntRange(1, 1000), help="Number of nodes, each like the trace's own."
)
@click.option("--no-moves", is_flag=True, help="Compare with the same policy without moves.")
@options.output
def simulate(
    trace: Path,
    policy: str | None,
    compare: str,
    seeds: int,
    cluster: str | None,
    nodes: int | None,
    no_moves: bool,
    output: str,
) -> None:
    """Run a trace under a policy, and others to compare it with, in simulated time.

    Controller, guards and policies are the daemon's own; only the node is simulated. Plain Docker
    (policy none) always runs too: the column "of plain" divides by its result. "of optimum" divides
    by what a scheduler that knows all work in advance would reach. "best" and "worst" are the jobs
    that gained and lost most against plain Docker. Parameters follow a policy's name.

    With --cluster the trace runs on several nodes: its `nodes`, or as many as --nodes says. Then
    --compare names policies of the cluster; `spread+none` is one with another policy of the nodes,
    `random` moves jobs by chance. The first one is what the others are measured by: "slower" counts
    jobs that take more than 10 % longer than under it. "clairvoyant" knows all work in advance.

    \b
    Examples:
      dlsched simulate day.yaml --policy adaptive
      dlsched simulate day.yaml --policy adaptive --compare fair,dqoes --seeds 5 -o json
      dlsched simulate day.yaml --policy tradl --compare 'tradl?weights=closest'
      dlsched simulate cluster.yaml --cluster adaptive --compare spread+none,specon --seeds 12
    """
    from dlsched.simulation import run as simulator
    from dlsched.simulation.scoring import rows as scored

    if cluster is not None:
        simulate_on_nodes(
            _read(trace), nodes, cluster, policy or "adaptive", compare, seeds, no_moves, output
        )
        return
    if nodes is not None or no_moves:
        raise click.UsageError("--nodes and --no-moves need --cluster")
    if policy is None:
        raise click.MissingParameter(param_hint="--policy", param_type="option")
    read = _read(trace)
    if read.nodes:
        raise click.BadParameter("the trace has several nodes", param_hint="--cluster")
    names = [policy, *(name for name in compare.split(",") if name)]
    runs = simulator.compare(read, names, range(1, seeds + 1))
    rows = scored(read, runs)
    for run in runs:
        for alarm in run.alarms:
            say(f"{run.policy}, seed {run.seed}: {alarm}")
    if output == "json":
        print_json({"rows": [asdict(row) for row in rows], "runs": [_as_json(run) for run in runs]})
        return
    print_text(_metrics_table(rows))
    print_text("")
    print_text(_jobs_table(runs, policy))


def _read(path: Path) -> Trace:
    from dlsched.config.text import read_text
    from dlsched.simulation.trace import SIZE_MAX_BYTES, TraceError, parse_trace

    return parse_trace(read_text(path, TraceError, size_max_bytes=SIZE_MAX_BYTES), str(path))


def _as_json(run: RunResult) -> dict[str, Any]:
    return {
        "policy": run.policy,
        "seed": run.seed,
        "ended_s": run.ended_s,
        "cycles": run.cycles,
        "jobs": [asdict(job) for job in run.jobs],
    }


def _metrics_table(rows: Sequence[Row]) -> str:
    """The table of metrics and policies, as means over the seeds."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for metric in dict.fromkeys(row.metric for row in rows):
        for row in rows:
            if row.metric == metric:
                groups.setdefault((metric, row.policy), []).append(row)
    seeds = len({row.seed for row in rows})
    lines = [("metric", "policy", "value", "of optimum", "of plain")]
    for (metric, policy), group in groups.items():
        # A run in which some training did not end has no makespan.
        lacks = [None] * (seeds - len(group))
        value, of_optimum, of_plain = (
            _mean([*(getattr(row, of) for row in group), *lacks])
            for of in ("value", "of_optimum", "of_plain")
        )
        lines.append((metric, policy, value, of_optimum, of_plain))
    return aligned(lines, left=2)


def _jobs_table(runs: Sequence[RunResult], policy: str) -> str:
    """The table of jobs, as means over the seeds, for the requested policy."""
    own = [run for run in runs if run.policy == policy]
    lines = [("job", "kind", "tier 1 s", "tier 2 s", "completion s", "satisfied", "met")]
    for jobs in zip(*(run.jobs for run in own), strict=True):
        parts = ("tier1_s", "tier2_s", "completion_s", "satisfied_ratio", "met_ratio")
        means = (_mean([getattr(job, part) for job in jobs]) for part in parts)
        lines.append((jobs[0].name, jobs[0].kind, *means))
    return aligned(lines, left=2)


def _mean(values: Sequence[float | None], form: str = "") -> str:
    """In that form, else with three digits or one after the point."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return "-"
    mean = statistics.fmean(known)
    return format(mean, form or (".1f" if abs(mean) >= 100 else ".3g"))


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
            raise click.BadParameter(
                "the trace has one node: give the number of nodes to simulate",
                param_hint="--nodes",
            )
        trace = with_nodes(trace, nodes)
    if not any(isinstance(job.load, TrainingLoad) for job in trace.jobs):
        raise click.BadParameter(
            "the trace has no training: a cluster is compared by when trainings end",
            param_hint="TRACE",
        )
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
            say(f"{name}: {ended} of {len(ends)} trainings ended; the trace ends before the others")


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

"""The command `simulate`, which runs traces."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli import options
from dlsched.cli.output import print_json, print_text, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlsched.simulation.scoring import Row, RunResult
    from dlsched.simulation.trace import Trace

_PICTURES = (".png", ".svg", ".pdf")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(short_help="Run a trace under policies, in simulated time.")
@click.argument("trace", type=_FILE, metavar="TRACE")
@click.option("--policy", "-p", required=True, help="The policy to run.")
@click.option("--compare", metavar="NAME,NAME", default="", help="Policies to compare it with.")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many seeds."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw a picture too: .png, .svg or .pdf.",
)
@options.output
def simulate(
    trace: Path, policy: str, compare: str, seeds: int, plot: Path | None, output: str
) -> None:
    """Run a trace under a policy, and others to compare it with, in simulated time.

    Controller, guards and policies are the daemon's own; only the node is simulated. Plain Docker
    (policy none) always runs too: the column "of plain" divides by its result. "of optimum" divides
    by what a scheduler that knows all work in advance would reach. "best" and "worst" are the jobs
    that gained and lost most against plain Docker. Parameters follow a policy's name.

    \b
    Examples:
      dlsched simulate day.yaml --policy adaptive
      dlsched simulate day.yaml --policy adaptive --compare fair,dqoes --seeds 5 -o json
      dlsched simulate day.yaml --policy tradl --compare 'tradl?weights=closest' --plot day.png
    """
    from dlsched.simulation import run as simulator
    from dlsched.simulation.scoring import rows as scored

    draw = None if plot is None else _drawer(plot)
    read = _read(trace)
    names = [policy, *(name for name in compare.split(",") if name)]
    runs = simulator.compare(read, names, range(1, seeds + 1))
    rows = scored(read, runs)
    if draw is not None and plot is not None:
        draw(read, runs, plot)
    for run in runs:
        for alarm in run.alarms:
            say(f"{run.policy}, seed {run.seed}: {alarm}")
    if output == "json":
        print_json({"rows": [asdict(row) for row in rows], "runs": [_as_json(run) for run in runs]})
        return
    print_text(_metrics_table(rows))
    print_text("")
    print_text(_jobs_table(runs, policy))


def _drawer(file: Path) -> Callable[[Trace, Sequence[RunResult], Path], None]:
    """The function that draws. It is imported before the runs, which may take long."""
    if file.suffix not in _PICTURES:
        hint = f"{file.name!r} does not end in {', '.join(_PICTURES)}"
        raise click.BadParameter(hint, param_hint="--plot")
    try:
        from dlsched.simulation.plot import draw
    except ImportError as error:
        say(f"--plot needs matplotlib ({error}): pip install 'dlsched[plot]'")
        raise SystemExit(1) from error
    return draw


def _read(path: Path) -> Trace:
    from dlsched.config.yaml import utf8_text
    from dlsched.simulation.trace import SIZE_MAX_BYTES, TraceError, parse_trace

    with path.open("rb") as stream:
        content = stream.read(SIZE_MAX_BYTES + 1)
    return parse_trace(utf8_text(content, str(path), TraceError), str(path))


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
    return _aligned(lines, left=2)


def _jobs_table(runs: Sequence[RunResult], policy: str) -> str:
    """The table of jobs, as means over the seeds, for the requested policy."""
    own = [run for run in runs if run.policy == policy]
    lines = [("job", "kind", "tier 1 s", "tier 2 s", "completion s", "satisfied", "met")]
    for jobs in zip(*(run.jobs for run in own), strict=True):
        parts = ("tier1_s", "tier2_s", "completion_s", "satisfied_ratio", "met_ratio")
        means = (_mean([getattr(job, part) for job in jobs]) for part in parts)
        lines.append((jobs[0].name, jobs[0].kind, *means))
    return _aligned(lines, left=2)


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(statistics.fmean(known)) if known and len(known) == len(values) else "-"


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _aligned(lines: Sequence[Sequence[str]], left: int) -> str:
    """Aligned columns: the first `left` to the left, numbers to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )

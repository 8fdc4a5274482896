"""Commands that make traces: trace format, generate, record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from dlsched.cli.commands import journals, options
from dlsched.cli.output import one_line, print_text, say
from dlsched.cli.program import FAILURE


@click.group(short_help="Make traces for simulate.")
def trace() -> None:
    """Make traces, the workloads that `dlsched simulate` runs.

    \b
    Examples:
      dlsched trace format
      dlsched trace generate --jobs 40 --hours 1 --seed 7 > day.yaml
      dlsched trace record /var/lib/dlsched > yesterday.yaml
    """


@trace.command("format", short_help="Show the format of a trace.")
def show_format() -> None:
    """Show the format of a trace: commented examples that have every key."""
    from dlsched.simulation import trace as package

    print_text((package.__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].rstrip())


@trace.command(short_help="Write a synthetic trace to stdout.")
@click.option("--jobs", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option(
    "--hours", type=options.Number(0.01, 8760), default=1.0, show_default=True, help="Duration."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--kind",
    type=click.Choice(["training", "inference", "mixed"]),
    default="mixed",
    show_default=True,
)
@click.option(
    "--schedule",
    type=click.Choice(["burst", "fixed", "random"]),
    default="random",
    show_default=True,
    help="When jobs arrive: together, a fixed gap apart, or at random.",
)
@click.option(
    "--gap", default="40s", show_default=True, help="Time between jobs in the fixed schedule."
)
@click.option("--cores", type=options.Number(0.1, 4096), default=16.0, show_default=True)
@click.option(
    "--demand",
    type=options.Number(0.01, 100),
    default=0.7,
    show_default=True,
    help="What all jobs need, as a ratio of all cores.",
)
@click.option(
    "--impossible",
    type=options.Number(0, 1),
    default=0.0,
    show_default=True,
    help="Part of the services whose target cannot be met.",
)
@click.option(
    "--noise",
    type=options.Number(0, 5),
    default=0.2,
    show_default=True,
    help="Standard deviation of a request's work over its mean.",
)
@click.option(
    "--quantile",
    default="mean",
    show_default=True,
    help="Statistic of the targets, such as p95.",
)
@click.option(
    "--change",
    type=options.Number(1, 100),
    default=1.0,
    show_default=True,
    help="Midway a service's work grows or shrinks by up to this factor.",
)
@click.option(
    "--churn",
    type=options.Number(0, 1),
    default=0.0,
    show_default=True,
    help="Part of the services that arrive late or leave early.",
)
@click.option(
    "--stale",
    type=options.Number(0, 1),
    default=0.0,
    show_default=True,
    help="Part of the services that report nothing for a while, repeatedly.",
)
@click.option(
    "--lying",
    type=options.Number(0, 1),
    default=0.0,
    show_default=True,
    help="Part of the services that report false latencies.",
)
@click.option("--families", help="Families of learning curves, such as power,drop (default: all).")
@click.option("--stay", help="How long services stay, such as 2h (default: to the end).")
@click.option(
    "--cycle", default="1s", show_default=True, help="Period of the daemon's control cycle."
)
@click.option("--name", default="", help="The trace's name (default: made from the options).")
def generate(
    jobs: int,
    hours: float,
    seed: int,
    kind: Any,
    schedule: Any,
    gap: str,
    cores: float,
    demand: float,
    impossible: float,
    noise: float,
    quantile: str,
    change: float,
    churn: float,
    stale: float,
    lying: float,
    families: str | None,
    stay: str | None,
    cycle: str,
    name: str,
) -> None:
    """Write a synthetic trace to stdout; the same options give the same trace.

    \b
    Example:
      dlsched trace generate --jobs 40 --hours 1 --seed 7 > day.yaml
    """
    from dlsched.simulation.trace import FAMILIES, Recipe, render_trace
    from dlsched.simulation.trace import generate as make

    wanted = list(FAMILIES) if families is None else families.split(",")
    if not set(wanted) <= set(FAMILIES):
        raise click.BadParameter(
            f"{families!r}: there are {', '.join(FAMILIES)}", param_hint="--families"
        )

    recipe = Recipe(
        jobs=jobs,
        duration_s=hours * 3600.0,
        seed=seed,
        kind=kind,
        schedule=schedule,
        cores=cores,
        demand=demand,
        impossible_ratio=impossible,
        gap_s=options.seconds(gap, "--gap", 0.001),
        stay_s=None if stay is None else options.seconds(stay, "--stay", 0.001),
        cycle_s=options.seconds(cycle, "--cycle", 0.001),
        name=name,
        noise=noise,
        quantile=_quantile(quantile),
        change_ratio=change,
        churn_ratio=churn,
        stale_ratio=stale,
        lying_ratio=lying,
        families=tuple(family for family in FAMILIES if family in wanted),
    )
    click.echo(render_trace(make(recipe)), nl=False)


@trace.command(short_help="Make a trace of recorded cycles, on stdout.")
@journals.argument
@journals.first
@journals.last
@click.option("--name", default="recorded", show_default=True, help="The trace's name.")
def record(journal: Path, first: str | None, last: str | None, name: str) -> None:
    """Write what a daemon recorded as a trace to stdout, for `dlsched simulate`.

    JOURNAL is a journal file or the state directory that holds one; a daemon may be writing it.
    Times such as 2026-11-21T14:30 are UTC unless they have an offset.

    Each job's work is fitted from the measurements: CPU time by step, latency by cores, reported
    values. stderr says what the record does not contain.

    \b
    Examples:
      dlsched trace record /var/lib/dlsched > yesterday.yaml
      dlsched trace record journal.db --from 2026-11-21T08:00 --to 2026-11-21T12:00 --name morning
    """
    from dlsched.model.spec import NAME
    from dlsched.simulation.trace import NothingRecorded, render_trace
    from dlsched.simulation.trace import record as recorded

    if not re.fullmatch(NAME, name):
        raise click.BadParameter(f"{name!r} is not a name: {NAME}", param_hint="--name")
    with journals.opened(journal) as reader:
        begin, end = journals.within(reader, first, last)
        try:
            found = recorded(reader.reports(begin, end), name)
        except NothingRecorded as error:
            kept = f"the journal holds {journals.cycles_text(reader.cycles())}"
            say(one_line(f"error: {reader.problem or f'{journal}: {error}; {kept}'}"))
            raise SystemExit(FAILURE) from None
    for remark in found.remarks:
        say(one_line(remark))
    click.echo(render_trace(found.trace), nl=False)
    if reader.problem is not None:
        say(f"error: {reader.problem}; the trace holds only what could be read")
        raise SystemExit(FAILURE)


def _quantile(text: str) -> float | None:
    from dlsched.config.job_values import quantile_of

    try:
        return quantile_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--quantile") from error

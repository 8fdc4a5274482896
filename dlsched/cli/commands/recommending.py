"""The command `recommend`: limits that recorded containers needed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlsched.cli.commands import journals, options
from dlsched.cli.output import print_json, print_text, say
from dlsched.cli.pages.layout import Cell, Column, Page
from dlsched.cli.program import FAILURE
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.units import render_quantile, render_seconds

if TYPE_CHECKING:
    from dlsched.review.advice import Advice
    from dlsched.review.advice.result import Recommended


@click.command(short_help="Show the limits that recorded containers needed.")
@journals.optional
@journals.since(least_s=1.0)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "compose", "job"]),
    default="table",
    show_default=True,
    help="A table, a Compose file to merge, or the keys to change in job files.",
)
@options.output
@options.config
def recommend(
    journal: Path | None, since_s: float, form: str, output: str, config: Path | None
) -> None:
    """Show what limits recorded containers needed to meet their targets.

    JOURNAL is a journal file or the state directory that holds one (default: the setting
    state_dir); a daemon may be writing it, under any policy, `none` and --dry-run included. For
    each container: what it used, what was measured of its target, the CPU limits with which all
    targets are met together, and which targets no limit meets, with the reason; and the
    memory that it held at most, with the limits that this needs.

    MIN is what a container needs for its target. MAX is for one with a MIN that would use so much
    that others lack it. WEIGHT is the CPU weight of all of them then, also for those without a
    target, which get no limit. Limits and weights keep the targets under plain Docker too. Nothing
    is changed: --format prints what to change.

    \b
    Examples:
      dlsched recommend --since 1d
      dlsched recommend /var/lib/dlsched --format compose > compose.limits.yaml
      dlsched recommend journal.db --since 2h --format job
    """
    from dlsched.review.advice import Adviser

    if journal is None:
        journal = options.settings(config).state_dir
    adviser = Adviser()
    with journals.opened(journal) as reader:
        last = reader.last_cycle()
        first, _ = reader.cycles_about(last, reader.last_now_s() - since_s, math.inf)
        for report in reader.reports(first, last):
            adviser.take(report)
        unread = reader.problem
    if unread is not None:
        say(f"error: {unread}; only what could be read counts")
    _show(adviser.advice(), form, output)
    if unread is not None:
        raise SystemExit(FAILURE)


# --------------------------------------------------------------------------- output


def _show(advice: Advice, form: str, output: str) -> None:
    if output == "json":
        from dlsched.api.codec import as_json

        print_json(as_json(advice))
        return
    if form == "table":
        _show_table(advice, Page())
        return
    from dlsched.review.advice import patches

    print_text((patches.compose if form == "compose" else patches.job_files)(advice).rstrip("\n"))


def _show_table(advice: Advice, page: Page) -> None:
    columns = (
        Column("NAME", 4, 24),
        Column("TARGET", 6, 20),
        Column("OVER", right=True),
        Column("MEASURED", 8, 30),
        Column("USED", right=True),
        Column("MIN", 3, right=True),
        Column("MAX", 3, right=True),
        Column("WEIGHT", right=True),
    )
    rows = [_row(one) for one in advice.jobs]
    page.table(columns, rows)
    page.line("")
    for one in advice.jobs:
        if one.need.out_of_reach is None:
            page.line(f"{one.name}: {one.why}")
        else:
            page.line(f"{one.name}: out of reach: {one.why}", "yellow")
        if one.memory is not None:
            page.line(f"{one.name}: {one.memory.text}")
    page.line("")
    policies = ", ".join(advice.policies)
    page.line(
        f"{render_seconds(advice.recorded_s)} under {policies}; {_cores(advice.room_cores)} cores "
        "to divide; MEASURED and USED (mean / 95 % of the time below) are of each container's last "
        "run, over the time in OVER"
    )
    for remark in advice.remarks:
        page.note("note", remark)
    lost = [one.name for one in advice.jobs if one.need.out_of_reach is not None]
    if lost:
        page.line(f"no limit meets the targets of {', '.join(lost)}", "yellow")
    page.line("nothing was changed; --format compose or --format job prints what to change")


def _row(one: Recommended) -> tuple[Cell, ...]:
    used = "?" if one.use is None else f"{one.use.mean_cores:.2f} / {one.use.busy_cores:.2f}"
    return (
        Cell(one.name),
        Cell(_target(one)),
        Cell(render_seconds(round(one.recorded_s))),
        Cell(_measured(one)),
        Cell(used),
        Cell(_cores(one.min_cores)),
        Cell(_cores(one.max_cores)),
        Cell("-" if one.cpu_shares is None else f"{one.cpu_shares}"),
    )


def _target(one: Recommended) -> str:
    target = one.target
    if isinstance(target, LatencyTarget):
        return f"{render_quantile(target.quantile)} {render_seconds(target.seconds)}"
    if isinstance(target, AccuracyTarget):
        due = "" if target.deadline_s is None else f" in {render_seconds(target.deadline_s)}"
        return f"{target.metric} {target.deliver:g}{due}"
    return "none"


def _measured(one: Recommended) -> str:
    if one.measured is None:
        return one.progress or "-"
    found = one.measured
    return f"{render_seconds(found.seconds)} of {found.requests}, met {found.met_ratio:.0%}"


def _cores(cores: float | None) -> str:
    return "-" if cores is None else f"{cores:.2f}"

"""The command `usage`: who asked for the CPU, got it, lent and borrowed it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dlsched.cli.commands import journals, options
from dlsched.cli.output import print_json, say
from dlsched.cli.pages.layout import Cell, Column, Page
from dlsched.cli.program import FAILURE
from dlsched.model.units import render_seconds

if TYPE_CHECKING:
    from dlsched.api.usage_schema import CpuSeconds, UsageStatus


@click.command(short_help="Show who used the CPU: asked, given, used, lent, borrowed.")
@journals.optional
@journals.since(least_s=60.0)
@click.option(
    "--by",
    type=click.Choice(["user", "job"]),
    default="user",
    show_default=True,
    help="A row for each owner of job files, or for each job.",
)
@options.output
@options.asking
def usage(
    journal: Path | None,
    since_s: float,
    by: Literal["user", "job"],
    output: str,
    config: Path | None,
    run_dir: Path | None,
) -> None:
    """Show who used the CPU in the last day, in CPU-seconds: one core for one second each.

    ASKED is what a job needed for its target by the policy's forecast, at least what it used; a job
    that waits for room asks for its floor. GIVEN is its ceiling; without one, what it used. LENT is
    the part of its fair share that other jobs used, BORROWED what it used beyond its own. A fair
    share is by weight, within floor and ceiling, among the jobs that run.

    Asks the daemon, or reads JOURNAL, a journal file or the state directory that holds one; a
    daemon may be writing it. Adopted containers have no owner.

    \b
    Examples:
      dlsched usage
      dlsched usage --since 7d --by job
      dlsched usage --json | jq '.rows[] | {name, used: .cpu.used_core_s}'
    """
    from dlsched.api.codec import as_json, read
    from dlsched.api.usage_schema import UsageStatus

    if journal is not None:
        answer = as_json(_read(journal, since_s, by))
    else:
        answer = options.daemon(config, run_dir).usage(since_s, by)
    if output == "json":
        print_json(answer)
        return
    found = read(UsageStatus, answer)
    for note in found.notes:
        say(f"note: {note}")
    if found.rows:
        _show(found)
    else:
        say("nothing is recorded of this time: give an earlier --since")
        raise SystemExit(FAILURE)


def _read(journal: Path, since_s: float, by: Literal["user", "job"]) -> UsageStatus:
    """The same from the file. Raises NoJournal."""
    from dlsched.api.usage import usage_status
    from dlsched.store.journal.history import read_usage
    from dlsched.store.journal.minutes import wall_s

    with journals.opened(journal) as reader:
        last, _ = reader.last()
    # The last cycle is of this range too.
    to_s = 1.0 + ((wall_s(last.wall_time) or 0.0) if last is not None else 0.0)
    from_s = max(to_s - since_s, 0.0)
    return usage_status(read_usage(reader.path, from_s, to_s), by, from_s, to_s)


def _show(found: UsageStatus) -> None:
    page = Page()
    node = f"{found.used_core_s:,.0f} of {found.capacity_core_s:,.0f} CPU-seconds used"
    page.line(f"{node} in {render_seconds(round(found.recorded_s))}")
    heads = ("ASKED", "GIVEN", "USED", "LENT", "BORROWED")
    columns = [
        Column("USER" if found.by == "user" else "JOB", least=12, most=40),
        Column("JOBS", right=True) if found.by == "user" else Column("UID", right=True),
        *(Column(head, least=9, right=True) for head in heads),
    ]
    rows = [
        [
            Cell(row.name),
            Cell(
                str(row.jobs)
                if found.by == "user"
                else "-"
                if row.owner is None
                else str(row.owner)
            ),
            *_cells(row.cpu),
        ]
        for row in found.rows
    ]
    if len(rows) > 1:
        rows.append([Cell("all", "bold"), Cell(""), *_cells(found.total)])
    page.table(columns, rows)


def _cells(cpu: CpuSeconds) -> list[Cell]:
    return [Cell(f"{core_s:,.0f}") for core_s in vars(cpu).values()]

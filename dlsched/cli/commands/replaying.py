"""The command `replay`, which asks a policy about recorded cycles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import journals, options
from dlsched.cli.output import one_line, print_text, say
from dlsched.cli.program import FAILURE

if TYPE_CHECKING:
    from dlsched.model.cycle import CycleReport
    from dlsched.review.replay import Agreement, Replay, ReplayRow

_HEAD = f"{'CYCLE':>8}  {'TIME':<24}  {'JOB':<20}  {'DONE':>8}  {'WOULD':>8}  {'DIFF':>8}  WHY"


@click.command(short_help="Show what a policy would have decided in recorded cycles.")
@journals.argument
@click.option("--policy", "-p", required=True, metavar="NAME", help="The policy that is asked.")
@journals.first
@journals.last
@click.option("--job", metavar="NAME", help="Show this job only.")
@click.option(
    "--changes-only/--all",
    default=True,
    show_default=True,
    help="Only rows with another limit than the job's row before, or every row.",
)
@click.option(
    "--dead-band", metavar="RATIO", help="Dead-band of the guards (default: the setting)."
)
@click.option("--cooldown", metavar="TIME", help="Cool-down of the guards (default: the setting).")
@options.output
@options.config
def replay(
    journal: Path,
    policy: str,
    first: str | None,
    last: str | None,
    job: str | None,
    changes_only: bool,
    dead_band: str | None,
    cooldown: str | None,
    output: str,
    config: Path | None,
) -> None:
    """Show what a policy would have decided in recorded cycles, beside what was done.

    JOURNAL is a journal file or the state directory that holds one; a daemon may be writing it.
    Parameters follow the policy's name, as in adaptive?mode=band. Times such as 2026-11-21T14:30
    are UTC unless they have an offset. DONE and WOULD are ceilings in cores after the guards, WHY
    is the policy's reason.

    The policy starts without memory, and every decision starts from what was measured under the
    limits that applied. How containers would have behaved under its own limits is not in a journal:
    run `dlsched simulate` on a recorded trace for that.

    \b
    Examples:
      dlsched replay /var/lib/dlsched --policy adaptive
      dlsched replay journal.db -p 'tradl?interval_s=5' --from 2026-11-21T14:30 --job vae -o json
    """
    from dlsched.control.decider import NamedPolicy
    from dlsched.control.guards import GuardOptions
    from dlsched.policies.registry import load
    from dlsched.review import replay as replaying

    named = NamedPolicy(policy, load(policy))
    settings = options.settings(config, {"dead_band": dead_band, "cooldown": cooldown})
    again = replaying.Replay(named, GuardOptions(settings.dead_band_ratio, settings.cooldown_s))
    news = replaying.News()
    failure: str | None = None

    def rows(reports: Iterator[CycleReport]) -> Iterator[ReplayRow]:
        nonlocal failure
        for report in reports:
            would, found = again.take(report)
            failure = would.trouble or failure
            for row in found:
                if job in (None, row.job) and (news.differs(row) or not changes_only):
                    yield row

    with journals.opened(journal) as reader:
        within = journals.within(reader, first, last)
        show = _show_json if output == "json" else _show_table
        show(rows(reader.reports(*within)), again, policy, job)
        kept = reader.cycles()
    if failure is not None:
        say(f"failed {again.failures} times, the last: {failure}")
    if reader.problem is not None:
        say(f"error: {reader.problem}; only what could be read is shown")
    elif not again.cycles:
        say(f"error: {journal}: no cycle in that range; it holds {journals.cycles_text(kept)}")
    elif job is not None and job not in again.jobs:
        known = one_line(", ".join(sorted(again.jobs)))
        say(f"error: no job {job!r} ran in these cycles; known are {known}")
    else:
        return
    raise SystemExit(FAILURE)


# --------------------------------------------------------------------------- output


def _show_table(rows: Iterator[ReplayRow], again: Replay, policy: str, job: str | None) -> None:
    """Row after row as it is read, since a day may not fit into memory."""
    for number, row in enumerate(rows):
        if number == 0:
            print_text(_HEAD)
        guard = f" (guard: {row.guard})" if row.guard else ""
        line = (
            f"{row.cycle:>8}  {row.wall_time:<24}  {row.job:<20}  {_cores(row.done_cores):>8}"
            f"  {_cores(row.would_cores):>8}  {row.difference_cores:>+8.3f}"
            f"  {row.would_why}{guard}".rstrip()
        )
        print_text(one_line(line))
    if not again.cycles:
        return
    print_text("")
    print_text(f"{'JOB':<20}  {'CYCLES':>8}  {'MEAN DIFF':>9}  {'AGREED':>7}")
    lines = [*_tallies(again, job).items(), *([("all jobs", again.all)] if job is None else [])]
    for name, tally in lines:
        figures = f"{tally.cycles:>8}  {tally.mean_apart_cores:>9.3f}  {tally.agreed_ratio:>7.1%}"
        print_text(one_line(f"{name:<20}  {figures}"))
    done = ", ".join(f"{name} decided {count} times" for name, count in again.recorded.items())
    asked = f"{policy}: asked {again.asks} times, failed {again.failures}"
    print_text(one_line(f"{asked}; in the record {done or 'no policy decided'}"))


def _show_json(rows: Iterator[ReplayRow], again: Replay, policy: str, job: str | None) -> None:
    """One object, written piece by piece."""
    from dlsched.api.codec import as_json

    click.echo(f'{{"policy": {json.dumps(policy)}, "rows": [', nl=False)
    for number, row in enumerate(rows):
        click.echo(f"{',' if number else ''}\n  {json.dumps(as_json(row))}", nl=False)
    summary = {
        "cycles": again.cycles,
        "asks": again.asks,
        "failures": again.failures,
        "recorded": again.recorded,
        "jobs": {name: _figures(tally) for name, tally in _tallies(again, job).items()},
        "all": _figures(again.all),
    }
    click.echo(f'\n], "summary": {json.dumps(as_json(summary), indent=2)}}}')


def _tallies(again: Replay, job: str | None) -> dict[str, Agreement]:
    return {name: again.jobs[name] for name in sorted(again.jobs) if job in (None, name)}


def _figures(tally: Agreement) -> dict[str, Any]:
    return {
        "cycles": tally.cycles,
        "mean_apart_cores": tally.mean_apart_cores,
        "agreed_ratio": tally.agreed_ratio,
    }


def _cores(cores: float | None) -> str:
    return "none" if cores is None else f"{cores:.3f}"

"""The command `report`: a range of the journal in text, JSON or one page."""

from __future__ import annotations

import os
from pathlib import Path

import click

from dlsched.cli.commands import journals, options
from dlsched.cli.output import print_json, say
from dlsched.cli.pages.layout import Page
from dlsched.cli.program import FAILURE

_LONG_CYCLES = 20_000
"""From so many on, reading takes tens of seconds: that is said."""


@click.command(short_help="Report the last day: targets met, limits changed, and their effects.")
@journals.optional
@journals.since(least_s=1.0)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write one page with plots into this file as well.",
)
@click.option(
    "--estimate/--no-estimate",
    default=True,
    show_default=True,
    help="Simulate the recorded load under plain Docker.",
)
@options.output
@options.config
def report(
    journal: Path | None,
    since_s: float,
    html: Path | None,
    estimate: bool,
    output: str,
    config: Path | None,
) -> None:
    """Report on a range of the journal: how long each target was met, what was changed and what was
    measured before and after, who gave CPU and who got it, and alarms.

    Beside it stands an estimate of what plain Docker would have done: the recorded load, simulated
    without limits. The same simulation under the recorded limits is compared with the record, and
    what differs is printed as the model's error.

    JOURNAL is a journal file or the state directory that holds one (default: the setting
    state_dir). A daemon may be writing it; none is needed.

    \b
    Examples:
      dlsched report
      dlsched report --since 2h --html report.html
      dlsched report /var/lib/dlsched --output json
    """
    from dlsched.review.gathering import review

    if html is not None:
        _check_place(html)
    if journal is None:
        journal = options.settings(config).state_dir
    with journals.opened(journal) as reader:
        cycles = len(reader.cycles())
        if cycles > _LONG_CYCLES and output != "json":
            say(f"reading up to {cycles} cycles, which takes about a minute for a day of 20 jobs")
        found = review(reader, since_s, estimates=estimate)
        unread = reader.problem
    if unread is not None:
        say(f"error: {unread}; only what could be read counts")
    if output == "json":
        from dlsched.api.codec import as_json

        print_json(as_json(found))
    else:
        from dlsched.cli.pages.report import show_report

        show_report(found, Page())
    if html is not None:
        from dlsched.cli.pages.report_html import page_of
        from dlsched.store.atomic import write_whole

        write_whole(html, page_of(found), mode=_mode(), to_disk=False)
        say(f"page: {html}")
    if unread is not None:
        raise SystemExit(FAILURE)


def _check_place(html: Path) -> None:
    """Refuse what a page would not replace as a file, before the work."""
    if html.is_symlink() or (html.exists() and not html.is_file()):
        what = f"{html} is not a regular file: it is not replaced"
        raise click.BadParameter(what, param_hint="--html")
    if not html.parent.is_dir():
        raise click.BadParameter(f"no folder {html.parent}", param_hint="--html")


def _mode() -> int:
    """As a shell's redirection would give it."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask

"""Shared by commands on a journal: its argument, and the range of cycles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dlsched.cli.commands import options
from dlsched.model.errors import DlschedError, NoJournal

if TYPE_CHECKING:
    from dlsched.store.journal.reader import JournalReader

F = TypeVar("F", bound=Callable[..., Any])

_LAST = (1 << 63) - 1

argument = click.argument("journal", metavar="JOURNAL", type=click.Path(path_type=Path))
optional = click.argument(
    "journal", metavar="[JOURNAL]", required=False, type=click.Path(path_type=Path)
)
first = click.option("--from", "first", metavar="WHEN", help="First cycle, by number or time.")
last = click.option("--to", "last", metavar="WHEN", help="Last cycle, by number or time.")


def since(least_s: float) -> Callable[[F], F]:
    """The option `--since`, as seconds of at least that many: the argument `since_s`."""

    def seconds(_context: click.Context, _option: click.Parameter, text: str) -> float:
        return options.seconds(text, "--since", least_s)

    return click.option(
        "--since",
        "since_s",
        default="1d",
        show_default=True,
        metavar="TIME",
        callback=seconds,
        help="How far back, from the last recorded cycle, such as 2h.",
    )


def opened(journal: Path) -> JournalReader:
    """The journal there. Raises NoJournal if nothing in it can be read."""
    from dlsched.store.journal.history import open_journal

    try:
        return open_journal(file(journal))
    except PermissionError:
        raise DlschedError(
            f"{journal}: this user may not read the journal, which holds every job's whole "
            "specification: use sudo, or let root write a page with `dlsched report --html FILE`; "
            "`dlsched usage` and `dlsched why JOB` ask the daemon"
        ) from None


def file(journal: Path) -> Path:
    """That file; in a folder the daemon's journal, else that of its dry run. Raises NoJournal, and
    PermissionError where this user may not read it."""
    from dlsched.store.journal.schema import DRY_RUN_JOURNAL_NAME, JOURNAL_NAME

    if journal.is_dir():
        names = (JOURNAL_NAME, DRY_RUN_JOURNAL_NAME)
        held = next((name for name in names if (journal / name).exists()), None)
        if held is None:
            raise NoJournal(f"{journal} holds no {' or '.join(names)}")
        journal /= held
    if not journal.exists():
        raise NoJournal(f"{journal}: no such journal")
    if not journal.is_file():  # opening a FIFO would wait for its writer
        raise NoJournal(f"{journal}: not a file")
    with journal.open("rb"):
        return journal


def within(reader: JournalReader, first: str | None, last: str | None) -> tuple[int, int]:
    """Numbers of the first and last cycle, from `--from` and `--to`."""
    from dlsched.review.replay import first_cycle_from, last_cycle_until

    begin, end = 0, _LAST
    if first is not None:
        begins = moment(first, "--from")
        begin = begins if isinstance(begins, int) else first_cycle_from(reader, begins)
    if last is not None:
        ends = moment(last, "--to")
        end = ends if isinstance(ends, int) else last_cycle_until(reader, ends)
    return begin, end


def moment(when: str, option: str) -> int | datetime:
    """A cycle's number, or a time."""
    if when.isascii() and when.isdigit() and len(when) < 19:
        return int(when)
    try:
        found = datetime.fromisoformat(when)
    except ValueError:
        what = f"{when!r} is neither a cycle's number nor a time such as 2026-11-21T14:30"
        raise click.BadParameter(what, param_hint=option) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def cycles_text(kept: range) -> str:
    return f"cycles {kept.start} to {kept.stop - 1}" if kept else "none"

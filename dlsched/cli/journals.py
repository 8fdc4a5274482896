"""Shared by commands on a journal: its argument, and the range of cycles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dlsched.model.errors import DlschedError
from dlsched.model.units import parse_seconds

if TYPE_CHECKING:
    from dlsched.store.journal.reader import JournalReader

F = TypeVar("F", bound=Callable[..., Any])

_LAST = (1 << 63) - 1

argument = click.argument(
    "journal", metavar="JOURNAL", type=click.Path(exists=True, path_type=Path)
)
first = click.option("--from", "first", metavar="WHEN", help="First cycle, by number or time.")
last = click.option("--to", "last", metavar="WHEN", help="Last cycle, by number or time.")


def since(least_s: float) -> Callable[[F], F]:
    """The option `--since`, as seconds of at least that many: the argument `since_s`."""

    def seconds(_context: click.Context, _option: click.Parameter, text: str) -> float:
        try:
            return parse_seconds(text, low=least_s)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--since") from None

    return click.option(
        "--since",
        "since_s",
        default="1d",
        show_default=True,
        metavar="TIME",
        callback=seconds,
        help="How far back, from the last recorded cycle, such as 2h.",
    )


def file(journal: Path) -> Path:
    from dlsched.store.journal.schema import JOURNAL_NAME

    if not journal.is_dir():
        if not journal.is_file():  # opening a FIFO would wait for its writer
            raise DlschedError(f"{journal}: not a file")
        return journal
    if not (journal / JOURNAL_NAME).is_file():
        raise click.BadParameter(f"{journal} holds no {JOURNAL_NAME}", param_hint="JOURNAL")
    return journal / JOURNAL_NAME


def within(reader: JournalReader, first: str | None, last: str | None) -> tuple[int, int]:
    """Numbers of the first and last cycle, from `--from` and `--to`."""
    from dlsched.simulation.replay import first_cycle_from, last_cycle_until

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

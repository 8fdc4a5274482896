"""Tables and wrapped lines at the terminal's width, in colour if supported.

Text from containers and files cannot steer the terminal or add a line. Standard library only: a
library for tables takes as long to import as `ps` takes in all.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import click

from dlsched.cli.output import one_line


def aligned(lines: Sequence[Sequence[str]], left: int) -> str:
    """Aligned columns: the first `left` to the left, numbers to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


PIPED_COLUMNS = 120

GAP = "  "

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


@dataclass(frozen=True)
class Cell:
    """Text in a table, on one line and safe to print, with a style such as `bold red`."""

    text: str
    style: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", one_line(self.text))


class Column(NamedTuple):
    """Minimum and maximum width of a column. With `wraps`, long text continues on the next line."""

    header: str
    least: int = 0
    most: int = 1000
    right: bool = False
    wraps: bool = False


class Page:
    """Standard output, as many columns as COLUMNS or the terminal has. Honours
    NO_COLOR, FORCE_COLOR."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self.width = _columns(terminal)
        capable = terminal and os.environ.get("TERM") not in ("dumb", "unknown")
        self._colour = not os.environ.get("NO_COLOR") and (
            capable or bool(os.environ.get("FORCE_COLOR"))
        )

    def line(self, text: str, style: str = "", indent: int = 0) -> None:
        for part in wrapped(one_line(text), self.width - indent):
            self._print(" " * indent + self._styled(part, style))

    def note(self, label: str, text: str, style: str = "") -> None:
        self.line(f"{label}: {text}", style, 2)

    def room(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> int:
        """The width that such a table leaves free; negative: it does not fit."""
        widths = _widths(columns, rows)
        return self.width - sum(widths) - len(GAP) * (len(widths) - 1)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a header and rows. The last column shrinks if they do not fit."""
        widths = _widths(columns, rows)
        widths[-1] = max(1, widths[-1] + min(0, self.room(columns, rows)))
        header = [Cell(column.header, "bold") for column in columns]
        for row in (header, *rows):
            for parts in _lines(row, columns, widths):
                self._print(self._row(parts, row, columns, widths))

    def _row(
        self,
        parts: Sequence[str],
        row: Sequence[Cell],
        columns: Sequence[Column],
        widths: Sequence[int],
    ) -> str:
        padded = []
        for text, cell, column, width in zip(parts, row, columns, widths, strict=True):
            room, styled = " " * (width - columns_of(text)), self._styled(text, cell.style)
            padded.append(room + styled if column.right else styled + room)
        return GAP.join(padded).rstrip()

    def _styled(self, text: str, style: str) -> str:
        if not (self._colour and style and text):
            return text
        return f"\x1b[{';'.join(str(_CODES[one]) for one in style.split())}m{text}\x1b[0m"

    def _print(self, line: str) -> None:
        click.echo(line, color=self._colour or None)


def columns_of(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_character_columns(one) for one in text)


def cropped(text: str, width: int) -> str:
    """The text, cut off with an ellipsis if it is wider."""
    return text if columns_of(text) <= width else _beginning(text, max(width - 1, 0)) + "…"


def wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of at most that width, broken at spaces if possible."""
    width = max(width, 2)
    while columns_of(text) > width:
        fits = _beginning(text, width)
        at = len(fits) if text[len(fits)] == " " else fits.rfind(" ")
        if at <= 0:
            at = len(fits)
        yield text[:at].rstrip()
        text = text[at:].lstrip()
    yield text


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
    return [
        max(
            column.least,
            len(column.header),
            min(column.most, max((columns_of(row[index].text) for row in rows), default=0)),
        )
        for index, column in enumerate(columns)
    ]


def _lines(
    row: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]
) -> Iterator[list[str]]:
    parts = [
        list(wrapped(cell.text, width)) if column.wraps else [cropped(cell.text, width)]
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    for number in range(max(len(one) for one in parts)):
        yield [one[number] if number < len(one) else "" for one in parts]


def _beginning(text: str, width: int) -> str:
    taken = 0
    for index, one in enumerate(text):
        taken += _character_columns(one)
        if taken > width:
            return text[:index]
    return text


def _character_columns(one: str) -> int:
    if unicodedata.combining(one):
        return 0
    return 2 if unicodedata.east_asian_width(one) in "WF" else 1


def _columns(terminal: bool) -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if terminal else PIPED_COLUMNS
    except OSError:
        return PIPED_COLUMNS

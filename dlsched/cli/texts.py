"""Pieces of text of which pages are made.

Owns that nothing from a container or a file can steer the terminal. It must not know what is told.
"""

from __future__ import annotations

from rich.padding import Padding
from rich.text import Text

from dlsched.cli.output import clean

WIDE_COLUMNS = 110
"""From here on a reason has a column; below it has lines of its own under the table."""


def note(label: str, words: str, style: str) -> Padding:
    """One line of its own, which goes on under its own beginning where it is long."""
    return Padding(text(f"{label}: {words}", style), (0, 0, 0, 2), expand=False)


def text(words: str, style: str = "") -> Text:
    """Text from a container or a file, safe to print."""
    return Text(clean(words), style=style)

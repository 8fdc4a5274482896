"""What `ps` and `why` tell of what can be expected of targets.

Owns which outlook a row shows, and its place and colour; the words are the daemon's. It must not
ask anybody: it is handed the daemon's answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.padding import Padding
from rich.text import Text

from dlsched.cli.texts import note, text

OUTLOOK_COLUMNS = 22
"""What the column takes, where the policy gives any outlook."""

_STYLE = {
    "met": "green",
    "expected": "",
    "crowded": "yellow",
    "impossible": "bold red",
    "unlikely": "yellow",
    "unknown": "dim",
}


def foretold_cell(job: Mapping[str, Any]) -> Text:
    """The outlook of the next target that is not met; of a blind job nothing can be expected."""
    outlook = _next(job)
    if job["blind"] is not None:
        return text("blind", "yellow")
    if outlook is None:
        return text("-", "dim")
    return text(outlook["text"], _STYLE[outlook["kind"]])


def expectation(job: Mapping[str, Any], *, shown: bool) -> str | None:
    """What the column, where it is `shown`, leaves to the reason: who would have to give."""
    outlook = _next(job)
    if outlook is None or outlook["kind"] == "met":
        return None
    if outlook["givers"]:
        return f"needs {outlook['givers']}"
    return None if shown or outlook["kind"] == "unknown" else str(outlook["text"])


def outlook_lines(job: Mapping[str, Any]) -> Iterator[Padding]:
    """A line for each target of the job; of a blind one what was expected while it was seen."""
    for outlook in job["outlook"]:
        past = " before" if job["blind"] and outlook["kind"] != "unknown" else ""
        style = "dim" if past else _STYLE[outlook["kind"]]
        yield note(f"outlook {outlook['tier']}{past}", outlook["sentence"], style)


def _next(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    outlooks: list[dict[str, Any]] = job["outlook"]
    still_open = [one for one in outlooks if one["kind"] != "met"]
    return still_open[0] if still_open else outlooks[-1] if outlooks else None

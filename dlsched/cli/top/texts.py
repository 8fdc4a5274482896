"""What top shows besides the table, as Rich's text. Nothing in it is markup, and text from
containers and files is cleaned by `Page` before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from dlsched.api.client import Daemon
from dlsched.cli.output import LogText
from dlsched.cli.pages.gpus import show_gpus
from dlsched.cli.pages.layout import Page
from dlsched.cli.pages.ps import node_line, show_alarms, show_cpu
from dlsched.cli.pages.why import show_why
from dlsched.cli.top.feed import View
from dlsched.model.units import counted

CHANGES = 10
"""Changes of the selected job that are shown: those whose effect is known."""

NOTES_MAX = 4
"""Lines of alarms and rejected files. The rest are counted: the jobs need the room."""

LOG_LINES = 500
"""Lines of a log that are shown: the last ones."""

LOG_CHARACTERS = 1 << 20
"""Of these, what is shown at most: the end."""

LOG_BYTES = 8 << 20
"""What is read for it at most, as one line may be endless."""

Load = Callable[[int], Text]
"""Asks the daemon for a text of that width. Raises DlschedError."""


class _Lines(Page):
    """A page of that width, kept in place of printed."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._colour = True
        self._kept: list[str] = []

    def _print(self, line: str) -> None:
        self._kept.append(line)

    @property
    def lines(self) -> Sequence[Text]:
        # The only sequences in it are the colours of the page itself.
        return [Text.from_ansi(line) for line in self._kept]


def node_text(view: View, width: int) -> Text:
    """The node in one line, alarms and rejected files."""
    status = view.status
    page = _Lines(width)
    foreign = status.node.foreign_cores
    others = "" if foreign is None else f" | {foreign:.2f} used by others"
    page.line(f"{node_line(status)}{others}", "bold" if status.engine.ok else "bold red")
    if status.engine.trouble:
        page.note("engine", status.engine.trouble, "bold red")
    notes = _Lines(width)
    show_alarms(status, notes)
    show_cpu(status, notes)
    lines = [*page.lines, *notes.lines[:NOTES_MAX]]
    if (more := len(notes.lines) - NOTES_MAX) > 0:
        lines.append(Text(f"  and {counted(more, 'more line')}: `dlsched ps`", "red"))
    return Text("\n").join(lines)


def why_of(daemon: Daemon, job: str, width: int) -> Text:
    """The job's page of `dlsched why`."""
    page = _Lines(width)
    show_why(job, daemon.explain(job, CHANGES), page)
    return Text("\n").join(page.lines)


def gpus_of(daemon: Daemon, width: int) -> Text:
    """The node's GPUs, and who holds them."""
    page = _Lines(width)
    show_gpus(daemon.status().node.gpus, page)
    return Text("\n").join(page.lines) or Text("this node has no GPUs", "dim")


def log_of(daemon: Daemon, job: str, _width: int) -> Text:
    """The last lines of its output."""
    text, shown, taken = LogText(), "", 0
    for chunk in daemon.logs(job, LOG_LINES, follow=False):
        taken += len(chunk)
        shown = (shown + text.feed(chunk))[-LOG_CHARACTERS:]
        if taken > LOG_BYTES:
            break
    lines = (shown + text.feed(b"", last=True)).split("\n")[-LOG_LINES - 1 :]
    return Text("\n".join(lines).rstrip("\n").expandtabs()) or Text(
        "the job has printed nothing", "dim"
    )

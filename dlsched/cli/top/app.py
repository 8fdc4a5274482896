"""The screen of `dlsched top` and its keys, and widgets with a text that the daemon is asked for,
again and again. The asking never blocks a key: it is done in threads that end with the process, as
a hung daemon does not answer."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from dlsched.cli.output import clean, one_line
from dlsched.cli.top.feed import Feed, View
from dlsched.cli.top.table import ORDERS, JobTable, ordered
from dlsched.cli.top.texts import Load, gpus_of, log_of, node_text, why_of
from dlsched.model.errors import DlschedError
from dlsched.model.units import counted


class Asked(VerticalScroll):
    """A scrolled text, asked for once at a time."""

    DEFAULT_CSS = "Asked { scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", show=False),
        Binding("j", "scroll_down", show=False),
    ]

    class _Answer(Message):
        def __init__(self, load: Load, text: Text) -> None:
            self.load, self.text = load, text
            super().__init__()

    def __init__(
        self,
        again_s: float | None,
        *,
        at_end: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """`again_s`: asked again so often; None: once. `at_end`: its end is what matters."""
        super().__init__(id=id)
        self.can_focus = id is None
        self._again_s, self._at_end = again_s, at_end
        self._load: Load | None = None
        self._asking = False
        self.text = Text()

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def on_mount(self) -> None:
        if self._at_end and self.can_focus:
            self.anchor()  # until its reader scrolls
        if self._again_s is not None:
            self.set_interval(self._again_s, self._ask)

    def ask(self, load: Load | None) -> None:
        """Show what `load` returns from now on; None: nothing."""
        self._load = load
        # What was shown is another job's.
        self._show(Text() if load is None else Text("asking the daemon", "dim"))
        self._ask()

    def _ask(self) -> None:
        if self._asking or self._load is None or not self.display:
            return
        self._asking = True
        width = max(self.content_size.width - self.scrollbar_size_vertical, 20)
        threading.Thread(
            target=self._run, args=(self._load, width), name="ask", daemon=True
        ).start()

    def _run(self, load: Load, width: int) -> None:
        try:
            text = load(width)
        except DlschedError as error:
            text = Text(clean(str(error)), "yellow")
        with suppress(RuntimeError):  # the program is ending, and its event loop has
            self.post_message(self._Answer(load, text))

    def on_asked__answer(self, answer: _Answer) -> None:
        self._asking = False
        if answer.load is self._load:
            self._show(answer.text)
        else:
            self._ask()

    def _show(self, text: Text) -> None:
        if text == self.text:
            return
        self.text = text
        # An anchored text that is short would stand at the bottom.
        follow = self._at_end and not self.can_focus and self.is_vertical_scroll_end
        self.query_one(Static).update(text)
        if follow:
            self.call_after_refresh(self.scroll_end, animate=False)


class Sheet(ModalScreen[None]):
    """A text over the whole terminal."""

    DEFAULT_CSS = """
    Sheet { background: $background; }
    Sheet > .title { width: 100%; background: $panel; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Back"),
        Binding("up,down,pageup,pagedown", "", "Scroll"),
    ]

    def __init__(
        self, title: str, load: Load, again_s: float | None = None, *, at_end: bool = False
    ) -> None:
        super().__init__()
        self._title, self._load = title, load
        self.asked = Asked(again_s, at_end=at_end)

    def compose(self) -> ComposeResult:
        yield Static(Text(self._title), classes="title", markup=False)
        yield self.asked
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.asked.focus()
        # Its width is known once it is laid out.
        self.call_after_refresh(self.asked.ask, self._load)

    def action_close(self) -> None:
        self.dismiss()


WHY_S = 3.0
"""The page of the selected job, and that of the GPUs, is asked for again so often."""

LOG_S = 2.0
"""A log that is shown is asked for again so often. It is not followed: a silent job would hold one
of the daemon's 32 places for it."""

LOW_ROWS = 20
"""On a lower terminal the table has all the room; Enter shows the page of the job."""

MOST_OF_TABLE = "50%"
"""Height of the table at most, while the page of the selected job is below it."""

FOOTER_COLUMNS = 48
"""On a narrower terminal the keys stand closer, so that there is room for how to leave."""

_HELP = """\
up, down, k, j    select a job; the cursor stays on it wherever its row goes
page up, page down, home, end
w, Enter          the whole page of `dlsched why`, of the selected job
l                 the last lines of its output, if you may read them
s                 sort: worst first, by name, by CPU
g                 GPUs of the node, and who holds them
q                 quit; in a page like this one: back

Worst first: failed or diverged; more than 10 % above the target; blind or
not running; up to 10 % above; not measured yet; target met; all others.
A latency counts by its mean over 30 s.

MEASURED: of a service the latency of its requests of the last 30 s (setting
`window`), of a training the last value that it reported.

TREND: measured latency over target, 15 s a column, 5 minutes. The scale is
from 0.5 to 1.5, the same for all jobs: in the lower half the target is met.

Nothing is changed from here: `dlsched --help` lists the commands that do.
"""


class Top(App[None]):
    """Node, alarms, jobs, and the page of the selected job."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #node, #news { width: 100%; height: auto; }
    #node { max-height: 40%; background: $panel; }
    #news.late { background: $error; color: $text; text-style: bold; }
    #why { height: 1fr; border-top: solid $primary; border-title-align: left; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w,enter", "why", "Why", key_display="w"),
        Binding("l", "logs", "Logs"),
        Binding("s", "sort", "Sort"),
        Binding("g", "gpus", "GPUs"),
        Binding("question_mark", "explain", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    class _News(Message):
        def __init__(self, view: View) -> None:
            self.view = view
            super().__init__()

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed
        self._view: View | None = None
        self._order = ORDERS[0]
        self._began_s = monotonic()
        # A timer may still fire while the widgets are taken away: these are not looked up by name.
        self._node, self._news = Static(id="node", markup=False), Static(id="news", markup=False)
        self.table = JobTable()
        self.why = Asked(WHY_S, at_end=True, id="why")

    def compose(self) -> ComposeResult:
        yield self._node
        yield self._news
        yield self.table
        yield self.why
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.table.focus()
        self._say()
        self.set_interval(1.0, self._say)
        self._feed.start(self._hand_over)
        # Its default action would leave the terminal as it is drawn now.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)

    def _hand_over(self, view: View) -> None:
        """For the feed's thread."""
        with suppress(RuntimeError):  # the program is ending, and its event loop has
            self.post_message(self._News(view))

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_resize(self) -> None:
        self.why.display = self.size.height >= LOW_ROWS
        # The jobs have the room that they need, up to this; the page of the selected one the rest.
        self.table.styles.max_height = MOST_OF_TABLE if self.why.display else "100%"
        self.query_one(Footer).compact = self.size.width < FOOTER_COLUMNS
        self.call_after_refresh(self._draw)

    def on_top__news(self, news: _News) -> None:
        self._view = news.view
        self._draw()

    # ------------------------------------------------------------------ drawing

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        self._node.update(node_text(view, self.size.width))
        self.table.show(ordered(view, self._order), view.trends)
        self._say()

    def _say(self) -> None:
        """What is shown, of when; or since when there is no news."""
        bar, view = self._news, self._view
        silent_s = monotonic() - self._began_s if view is None else view.silence(monotonic())
        late = silent_s is not None and (view is not None or self._feed.problem is not None)
        bar.set_class(late, "late")
        if self.table.dimmed != late:
            self.table.dimmed = late
            self.table.refresh()
        bar.update(Text(self._line(late, silent_s), no_wrap=True, overflow="ellipsis"))

    def _line(self, late: bool, silent_s: float | None) -> str:
        view = self._view
        if late:
            parts = [f"the daemon has sent nothing for {silent_s:.0f} s"]
            parts += [one_line(self._feed.problem)] if self._feed.problem else []
            parts += [f"what you see is from {_clock(view)}"] if view else []
            return "; ".join(parts)
        if view is None:
            return "waiting for the daemon's first cycle"
        return " | ".join((counted(len(view.status.jobs), "job"), self._order, _clock(view)))

    # ------------------------------------------------------------------ keys

    @on(JobTable.Selected)
    def _ask_why(self, selected: JobTable.Selected) -> None:
        self.why.border_title = Text(f"why {one_line(selected.job)}" if selected.job else "")
        self.why.ask(self._why_of(selected.job) if selected.job else None)

    def action_why(self) -> None:
        if job := self.table.selected:
            self.push_screen(Sheet(f"why {one_line(job)}", self._why_of(job), WHY_S))

    def _why_of(self, job: str) -> Load:
        return partial(why_of, self._feed.daemon, job)

    def action_logs(self) -> None:
        if job := self.table.selected:
            load = partial(log_of, self._feed.daemon, job)
            self.push_screen(Sheet(f"logs {one_line(job)}", load, LOG_S, at_end=True))

    def action_explain(self) -> None:
        self.push_screen(Sheet("dlsched top", lambda _width: Text(_HELP)))

    def action_sort(self) -> None:
        self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
        self._draw()

    def action_gpus(self) -> None:
        self.push_screen(Sheet("GPUs", partial(gpus_of, self._feed.daemon), WHY_S))


def _clock(view: View) -> str:
    """The daemon's time of day, UTC."""
    return f"{one_line(view.status.now)[11:19]} UTC"

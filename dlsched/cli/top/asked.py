"""Widgets with a text that the daemon is asked for, again and again. The asking never blocks a key:
it is done in threads that end with the process, as a hung daemon does not answer."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from dlsched.cli.output import clean
from dlsched.cli.top.texts import Load
from dlsched.model.errors import DlschedError


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

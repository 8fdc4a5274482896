"""Top without a terminal: shown what a test gives it, over a real API for what it asks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dlsched.api.client import Daemon
from dlsched.api.codec import as_json, read
from dlsched.api.schema import Status
from dlsched.api.status import node_status
from dlsched.cli.top.app import Top
from dlsched.cli.top.feed import Feed, View
from dlsched.model.cycle import CycleReport
from tests.status_source import FakeSource

Trends = Mapping[str, Sequence[float | None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def view_of(
    report: CycleReport, means: Mapping[str, float] | None = None, trends: Trends | None = None
) -> View:
    """The view of a cycle that is never late."""
    status = read(Status, as_json(node_status(report)))
    return View(status, means or {}, trends or {}, heard_s=math.inf, period_s=1.0)


class GivenFeed(Feed):
    """Follows no stream."""

    def __init__(self, folder: Path, *views: View) -> None:
        super().__init__(Daemon(folder))
        self.views = views
        self.give: Callable[[View], object] = lambda _view: None

    def start(self, news: Callable[[View], object]) -> None:
        self.give = news
        for view in self.views:
            news(view)


class Shown:
    """Top, with a person before it."""

    def __init__(self, app: Top, feed: GivenFeed, pilot: Pilot[None]) -> None:
        self.app, self.feed, self._pilot = app, feed, pilot
        self.press, self.pause = pilot.press, pilot.pause

    @property
    def lines(self) -> list[str]:
        """What the terminal shows, line by line."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def names(self) -> list[str]:
        """The first word of each row below the header; none before that is painted."""
        header = next((at for at, one in enumerate(self.lines) if one.startswith("NAME")), 1000)
        rows = self.lines[header + 1 : header + self.app.table.size.height]
        return [line.split()[0] for line in rows if line.split()]

    def give(self, view: View) -> None:
        """News of the daemon."""
        self.feed.give(view)

    async def until(self, found: Callable[[], bool]) -> None:
        """Wait for what a thread or a timer brings."""
        async with asyncio.timeout(90):  # a loaded host
            while not found():
                await self._pilot.pause(0.02)

    async def shows(self, text: str) -> None:
        """Wait until the text is on the screen."""
        await self.until(lambda: any(text in line for line in self.lines))

    async def becomes(self, found: Callable[[], object], wanted: object) -> None:
        """Wait until that is what is found: no pause says that all is painted."""
        with suppress(TimeoutError):
            await self.until(lambda: found() == wanted)
        assert found() == wanted

    async def keys_show(self, right: Callable[[str], bool]) -> None:
        """Wait until the line of keys is right: it is composed after the rest, and again later."""
        await self.becomes(lambda: right(next(reversed(self.lines), "")), True)


Play = Callable[..., AbstractAsyncContextManager[Shown]]


@pytest.fixture
def play(daemon: FakeSource, folders: Path) -> Play:
    """Runs top, shown these views, in a terminal of that size."""

    @asynccontextmanager
    async def run(*views: View, size: tuple[int, int] = (110, 30)) -> AsyncIterator[Shown]:
        feed = GivenFeed(folders / "run", *views)
        app = Top(feed)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            yield Shown(app, feed, pilot)

    return run

"""Top without a terminal: shown what a test gives it, over a real API for what it asks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dlsched.api.client import Daemon
from dlsched.api.reading import as_json, read
from dlsched.api.schema import Status
from dlsched.api.status import node_status
from dlsched.cli.top.app import Top
from dlsched.cli.top.feed import Feed, View
from dlsched.model.cycle import CycleReport
from tests.status_source import FakeSource

Trends = Mapping[str, Sequence[float | None]]


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


def screen_lines(app: Top) -> list[str]:
    """What the terminal shows, line by line."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def until(pilot: Pilot[None], found: Callable[[], bool]) -> None:
    """Wait for what a thread or a timer brings."""
    async with asyncio.timeout(90):  # a loaded host
        while not found():
            await pilot.pause(0.02)


async def shows(pilot: Pilot[None], text: str) -> None:
    """Wait until the text is on the screen."""
    app = pilot.app
    assert isinstance(app, Top)
    await until(pilot, lambda: any(text in line for line in screen_lines(app)))


async def becomes(pilot: Pilot[None], found: Callable[[], object], wanted: object) -> None:
    """Wait until that is what is found: no pause says that all is painted. Fails with what is."""
    with suppress(TimeoutError):
        await until(pilot, lambda: found() == wanted)
    assert found() == wanted


async def keys_show(pilot: Pilot[None], right: Callable[[str], bool]) -> None:
    """Wait until the line of keys is right: it is composed after the rest, and again later."""
    app = pilot.app
    assert isinstance(app, Top)

    def last() -> str:
        return next(reversed(screen_lines(app)), "")

    with suppress(TimeoutError):
        await until(pilot, lambda: right(last()))
    assert right(last()), last()


Played = Callable[[Pilot[None], GivenFeed], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(daemon: FakeSource, folders: Path) -> Play:
    """Runs top, shown these views, in a terminal of that size, and plays a person before it."""

    def run(
        person: Played, *views: View, size: tuple[int, int] = (110, 30), of_cluster: bool = False
    ) -> None:
        async def session() -> None:
            feed = GivenFeed(folders / "run", *views)
            async with Top(feed, of_cluster=of_cluster).run_test(size=size) as pilot:
                await pilot.pause()
                await person(pilot, feed)

        asyncio.run(session())

    return run

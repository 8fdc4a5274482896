"""The look of top, held to pictures in the repository."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dlsched.cli.top import app as app_module
from dlsched.cli.top.app import Top
from tests.cli.top.conftest import GivenFeed, Play, becomes, screen_lines, shows, view_of
from tests.cli.top.looks import assert_looks, looks
from tests.cli.top.test_app import jobs_report
from tests.cluster_status import example
from tests.lanes import but_the_first_long
from tests.status_source import FakeSource, example_report, foretold, gpu_report

pytestmark = pytest.mark.timed

RATIOS = tuple(0.5 + n / 20 for n in range(20))
VIEW = view_of(
    foretold(example_report()),
    {"digits-resnet": 1.6, "digits-mobilenet": 1.03, "digits-vgg": 0.6},
    {
        "digits-resnet": RATIOS,
        "digits-mobilenet": [None] * 10 + [1.0] * 10,
        "digits-vgg": [0.6] * 20,
    },
)


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a terminal with all colours."""
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_jobs_with_trends_and_forecasts(play: Play, daemon: FakeSource) -> None:
    daemon.report = foretold(example_report())

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.press("down")
        await shows(pilot, "helped: 90 -> 81.7 ms")
        await looks(pilot, "jobs")

    play(person, VIEW, size=(138, 40))


def test_gpus(play: Play) -> None:
    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.press("g")
        await looks(pilot, "gpus")

    play(person, view_of(gpu_report()), size=(120, 19))


def test_the_cluster(play: Play, daemon: FakeSource) -> None:
    at = (datetime.now(UTC) - timedelta(days=3)).isoformat()  # 3 d old, however slow the host
    daemon.cluster_status = replace(example(), written_at=at)

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await pilot.press("n")
        await shows(pilot, "3 d old")
        await looks(pilot, "cluster")

    play(person, VIEW, size=(110, 24), of_cluster=True)


def test_no_news(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "monotonic", lambda: 1012.0)

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        feed.give(replace(VIEW, heard_s=1000.0))
        await shows(pilot, "no news for 12 s")
        await looks(pilot, "no-news")

    play(person, size=(80, 19))


@pytest.mark.parametrize("change", but_the_first_long(["text", "colour", "size"]))
def test_a_changed_look_fails(play: Play, change: str) -> None:
    report = gpu_report() if change != "text" else jobs_report("other")

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        if change == "colour":
            pilot.app.theme = "textual-light"
        await pilot.press("g")
        await pilot.pause()
        with pytest.raises(AssertionError, match="looks otherwise"):
            assert_looks(pilot.app, "gpus")

    play(person, view_of(report), size=(121 if change == "size" else 120, 19))


def test_the_documentation_shows_what_top_shows(play: Play, daemon: FakeSource) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "top.md"
    captured = page.read_text().split("```text\n")[1].split("\n```")[0]
    report = foretold(example_report())
    shown = ("digits-mobilenet", "digits-resnet", "digits-vgg", "lenet-train", "queued")
    jobs = tuple(one for one in report.snapshot.jobs if one.name in shown)
    report = replace(report, snapshot=replace(report.snapshot, jobs=jobs), alarms=(), rejected=())
    daemon.report = report
    view = view_of(report, VIEW.means, VIEW.trends)

    async def person(pilot: Pilot[None], feed: GivenFeed) -> None:
        await shows(pilot, "helped: 90 -> 81.7 ms")
        await shows(pilot, "forecast latency")
        app = pilot.app
        assert isinstance(app, Top)
        # Without the empty lines.
        await becomes(pilot, lambda: "\n".join(filter(None, screen_lines(app))), captured)

    play(person, view, size=(118, 40))

"""The look of top, held to pictures in the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.top.conftest import Play, view_of
from tests.cli.top.looks import looks
from tests.status_source import FakeSource, example_report, foretold, gpu_report, report_of

pytestmark = [pytest.mark.timed, pytest.mark.anyio]

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


async def test_jobs_with_trends_and_forecasts(play: Play, daemon: FakeSource) -> None:
    daemon.report = foretold(example_report())
    async with play(VIEW, size=(138, 40)) as top:
        await top.press("down")
        await top.shows("helped: 90 -> 81.7 ms")
        await looks(top, "jobs")
    assert ("changes", "digits-resnet", 10) in daemon.asked


async def test_gpus(play: Play, daemon: FakeSource) -> None:
    daemon.report = gpu_report()
    async with play(VIEW, size=(120, 30)) as top:
        await top.press("g")
        await top.shows("notebook-ada")
        await looks(top, "gpus")


async def test_the_documentation_shows_what_top_shows(play: Play, daemon: FakeSource) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "top.md"
    captured = page.read_text().split("```text\n")[1].split("\n```")[0]
    jobs = (one for one in example_report().snapshot.jobs if one.name[:2] in ("di", "le", "qu"))
    daemon.report = foretold(report_of(*jobs, alarms=(), rejected=()))
    async with play(view_of(daemon.report, VIEW.means, VIEW.trends), size=(118, 40)) as top:
        await top.shows("helped: 90 -> 81.7 ms")
        await top.shows("forecast latency")
        # Without the empty lines.
        await top.becomes(lambda: "\n".join(filter(None, top.lines)), captured)

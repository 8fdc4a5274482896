"""When the daemon ends, hangs or comes back, and when its tab is hidden."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest

from tests.browser.conftest import Open, Serve
from tests.browser.driver import TIMES, Opened, expect

pytestmark = [pytest.mark.browser]

GONE = (
    "ERR_CONNECTION",
    "ERR_INCOMPLETE_CHUNKED",
    "ERR_EMPTY_RESPONSE",
    "ERR_CONTENT_LENGTH_MISMATCH",
)
"""Of a daemon that was killed, also in the middle of an answer."""
JOBS = "#jobs tbody tr:visible"


def points(one: Opened) -> int:
    return int(one.now("points"))


def test_after_a_restart_the_curves_go_on(own: Serve, visit: Open) -> None:
    server = own("eight")
    one = visit(server, allowed=GONE)
    one.state("points", re.compile("^3"))
    one.page.locator('tr[data-job="job-002"]').click()
    server.kill()
    one.state("news", "old")
    text = r"No news for \d+ s, what you see is from \d\d:\d\d:\d\d\. No connection, trying again\."
    one.shows("#banner", re.compile(text))
    expect(one.page.locator(JOBS)).to_have_count(8)
    assert float(one.page.evaluate("getComputedStyle(document.querySelector('main')).opacity")) < 1
    before, selected = points(one), one.now("selected")

    server.start()
    one.state("news", "live")
    expect(one.page.locator("#banner")).to_be_hidden()
    # Points of the new run, though it sends none with the ids of the old one.
    one.reaches("points", before + 2)
    assert one.now("selected") == selected
    one.press("Escape")
    one.state("why", "")


def test_a_daemon_that_hangs_shows_by_the_age_of_its_last_message(own: Serve, visit: Open) -> None:
    server = own("eight")
    one = visit(server)
    old = re.compile(r"No news for \d+ s, what you see is from \d\d:\d\d:\d\d\.")
    for _ in range(3):
        one.state("news", "live")
        server.signal(signal.SIGSTOP)
        one.state("news", "old")
        one.shows("#banner", old)
        if one.now("stream") == "open":
            break
        server.signal(signal.SIGCONT)  # the stream broke for another reason at that moment
    assert one.now("stream") == "open"
    one.shows("#banner", "The connection is open, but the daemon sends nothing.")
    expect(one.page.locator(JOBS)).to_have_count(8)
    server.signal(signal.SIGCONT)
    one.state("news", "live")
    expect(one.page.locator("#banner")).to_be_hidden()


def hide(page: Any, hidden: bool) -> None:
    """As a browser does for a tab that is not in front."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_hidden_page_follows_nothing_and_goes_on_without_a_gap(own: Serve, visit: Open) -> None:
    one = visit(own("eight"))
    one.state("points", re.compile("^3"))
    with one.page.expect_event("requestfailed", lambda request: "/v1/stream" in request.url):
        hide(one.page, True)
    one.state("stream", "closed")
    before = points(one)
    asked: list[str] = []
    one.page.on("request", lambda request: asked.append(request.url))
    hide(one.page, False)
    one.state("news", "live")
    one.reaches("points", before + 2)
    (stream,) = (url for url in asked if "/v1/stream" in url)
    assert "?after=run" in stream


@pytest.mark.parametrize("file", ["js/why.js", "style.css", "vendor/uPlot.iife.min.js"])
def test_a_page_of_which_a_file_was_lost_is_loaded_again(opened: Open, file: str) -> None:
    one = opened("eight", allowed=("ERR_FAILED", "uPlot is not defined"))
    lost: list[str] = []

    def lose_the_first(route: Any) -> None:
        lost.append(route.request.url)
        if len(lost) == 1:
            route.abort()
        else:
            route.continue_()

    one.page.route(f"**/static/{file}", lose_the_first)
    one.page.goto(one.url)
    if len(lost) == 1:  # else it is loaded again already
        one.page.wait_for_event("load")
    one.state("drawn", "light")
    assert len(lost) > 1


HISTORY: dict[str, Any] = {
    "schema_version": 1,
    "from_s": 1_795_590_000.0,
    "to_s": 1_795_590_180.0,
    "step_s": 60.0,
    "times": [1_795_590_000.0, 1_795_590_060.0, 1_795_590_120.0],
    "node": {
        "capacity_cores": [4.0, None, 4.0],
        "given_cores": [2.0, None, 2.0],
        "used_cores": [1.0, None, 1.5],
        "foreign_cores": [0.1, None, 0.2],
        "memory_bytes": [1.0, None, 1.0],
        "shadow_cores": [2.5, None, 1.25],
    },
    "changes": [
        {
            "cycle": 9,
            "now_s": 60.0,
            "wall_time": "2026-11-25T07:01:00Z",
            "job": "job-001",
            "kind": "resize",
            "before_cores": 1.0,
            "after_cores": 1.5,
            "why": "p95 81 ms of 50 ms",
            "guard": "",
            "status": "done",
            "detail": "",
            "before_share": None,
            "after_share": None,
            "gpus": "",
            "changed": "limit 1.000 -> 1.500 cores",
        }
    ],
    "changes_left_out": 0,
    "effects": [None],
    "events": [],
    "events_left_out": 0,
    "notes": ["minutes before 07:00 are coarser"],
    "jobs": {
        "job-001": {
            "ratio": [1.5, None, 0.75],
            "ratio_low": [1.4, None, 0.7],
            "ratio_high": [1.6, None, 0.8],
            "measured_s": [0.08, None, 0.04],
            "metric": [None, None, None],
            "limit_cores": [1.0, None, 1.5],
            "usage_cores": [0.9, None, 1.1],
        }
    },
}


def test_an_hour_from_the_journal(opened: Open) -> None:
    one = opened("eight")
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(status=200, content_type="application/json", body=json.dumps(HISTORY))

    one.page.route("**/v1/history*", answer)
    one.go()
    one.press("2")
    one.state("history", "shown")
    one.shows("#ratio-legend", f"job-0010.75{TIMES}")
    one.shows("#limits-legend", "not dlsched's0.20", "shadow policy1.25")
    one.shows("#changes-trouble", "minutes before 07:00 are coarser")
    one.shows("#changes-of", "1 change in the time shown")
    (begin, end) = map(int, re.findall(r"(?:from|to)=(\d+)", asked[0]))
    assert 3600 <= end - begin <= 3602
    one.press("1")
    one.state("history", "")
    expect(one.page.locator("#ratio-legend .chip")).to_have_count(8)


def test_a_real_journal_has_the_hour_with_effects(visit: Open) -> None:
    one = visit("played", "#range=1h&job=lane-keeping")
    one.state("history", "shown")
    one.shows("#limits-legend", "lane-keeping")
    one.shows("#changes", re.compile(r"slower: \d+\.\d -> \d+(\.\d)? ms \(\d+ requests\)"))
    expect(one.page.locator("#ratio-legend .chip")).to_have_count(7)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, {"error": "Not Found"}, "The last day: this daemon has no history."),
        (503, {"error": "a history is being read already"}, "a history is being read already"),
    ],
)
def test_without_a_history_the_page_says_why_and_stays_live(
    opened: Open, status: int, body: dict[str, str], said: str
) -> None:
    one = opened("eight", allowed=(str(status),))
    one.page.route(
        "**/v1/history*",
        lambda route: route.fulfill(
            status=status, content_type="application/json", body=json.dumps(body)
        ),
    )
    one.go()
    one.press("4")
    one.state("history", "failed")
    one.shows("#changes-trouble", said)
    expect(one.page.locator("#ratio-legend .chip")).to_have_count(8)

"""What the page takes, by the browser's own measures: printed beside a calibration. Only its bytes
are bounded, since a time depends on the machine."""

from __future__ import annotations

import json
import re
import statistics
import time
from typing import Any

import pytest

from tests.browser.conftest import Open, Serve
from tests.browser.driver import Opened

pytestmark = [pytest.mark.browser]

BYTES_MAX = 120_000
TRACED_MS = 10_000
CALIBRATION_LOOPS = 1_000_000


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Any:
    def line(text: str) -> None:
        with capsys.disabled():
            print(f"\nfigure: {text}", flush=True)  # noqa: T201

    return line


def calibration_ms(one: Opened) -> float:
    """Time of an empty loop in this browser, now: 2 ms on an idle core of 2020."""
    script = """loops => {
        const begin = performance.now();
        let sum = 0;
        for (let at = 0; at < loops; at += 1) sum = (sum * 31 + at) % 1000003;
        return performance.now() - begin + (sum < 0 ? 1 : 0);
    }"""
    return float(statistics.median(one.page.evaluate(script, CALIBRATION_LOOPS) for _ in range(5)))


def test_bytes_and_first_paint(shared, opened: Open, tell) -> None:
    one = opened(shared("eight"))
    sizes: dict[str, int] = {}

    def note(request: Any) -> None:
        if "/v1/" not in request.url and not request.url.startswith("data:"):
            sizes[request.url] = request.sizes()["responseBodySize"]

    one.page.on("requestfinished", note)
    one.go()
    first_ms = one.page.evaluate(
        """() => new Promise((told) => new PerformanceObserver((list) => {
            for (const paint of list.getEntriesByName("first-paint")) told(paint.startTime);
        }).observe({type: "paint", buffered: true}))"""
    )
    assert len(sizes) > 10
    assert sum(sizes.values()) < BYTES_MAX
    tell(f"page {sum(sizes.values())} bytes in {len(sizes)} files (bound {BYTES_MAX})")
    calibrated = f"calibration loop {calibration_ms(one):.1f} ms"
    tell(f"first paint on loopback {first_ms:.0f} ms (goal 300 ms), {calibrated}")


def test_frames_of_two_hundred_jobs(own: Serve, opened: Open, chromium: Any, tell) -> None:
    one = opened(own("many", period_s=1.0))
    one.go()
    one.state("points", re.compile(r"^9\d\d$"))
    calibrated_ms = calibration_ms(one)
    one.page.wait_for_timeout(2000)
    chromium.start_tracing(page=one.page, categories=["devtools.timeline", "toplevel"])
    one.page.wait_for_timeout(TRACED_MS)
    events = json.loads(chromium.stop_tracing())["traceEvents"]
    frames = frame_times_ms(events)
    assert len(frames) >= 3
    tell(
        f"frame with 200 jobs and {one.now('points')} points: "
        f"median {statistics.median(frames):.1f} ms, longest {max(frames):.1f} ms of {len(frames)} "
        f"(goal 16 ms), calibration loop {calibrated_ms:.1f} ms"
    )


def frame_times_ms(events: list[dict[str, Any]]) -> list[float]:
    """CPU time of the page's thread in each frame that the page asked for: script, style, layout
    and paint are one task there."""
    scripts = [one for one in events if one["name"] == "FireAnimationFrame"]
    tasks = [one for one in events if one["name"] in ("RunTask", "ThreadControllerImpl::RunTask")]
    found = []
    for script in scripts:
        around = [
            task.get("tdur", task.get("dur", 0))
            for task in tasks
            if (task["pid"], task["tid"]) == (script["pid"], script["tid"])
            and task["ts"] <= script["ts"] <= task["ts"] + task.get("dur", 0)
        ]
        if around:
            found.append(max(around) / 1000)
    return found


def test_reconnect_with_data(own: Serve, opened: Open, tell) -> None:
    server = own("eight")
    one = opened(server, allowed=("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY"))
    one.go()
    one.state("points", re.compile("^3"))
    server.kill()
    one.state("news", "old")
    before = int(one.now("points"))
    server.start()
    began_s = time.monotonic()
    one.reaches("points", before + 1)
    taken_s = time.monotonic() - began_s
    calibrated = f"calibration loop {calibration_ms(one):.1f} ms"
    tell(
        f"data after a restart within {taken_s:.1f} s of its first answer (goal 3 s), {calibrated}"
    )

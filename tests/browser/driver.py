"""A browser, a server that can be stopped and killed, and what a page must never do.

Nothing waits by `wait_for_function`: the page's policy forbids the evaluation that it polls with.
The page shows its state as data-* on <body>. Playwright is imported late, as other lanes have none.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.prometheus.conftest import free_port
from tests.waiting import until
from tools.environment import ROOT

WAIT_MS = 60_000
TIMES = "\xd7"


@dataclass
class Server:
    """The API over a scene, as a process."""

    scene: str
    folder: Path
    port: int = field(default_factory=free_port)
    period_s: float = 0.25

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = [sys.executable, "-m", "tests.browser.server", self.scene, str(self.port)]
        words += [str(self.folder), "--period", str(self.period_s)]
        self.process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "answering\n"

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would, its connections with it."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@contextmanager
def serving(scene: str, folder: Path, period_s: float = 0.25) -> Iterator[Server]:
    server = Server(scene, folder, period_s=period_s)
    server.start()
    try:
        yield server
    finally:
        server.kill()


class Opened:
    """A page, with everything that it complained about or asked of others."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._request)

    def go(self, link: str = "") -> None:
        """Open the page and wait until it shows jobs."""
        self.page.goto(self.url + link)
        self.state("jobs", re.compile("."))

    def pause(self) -> None:
        """Hold what is shown, once there are curves."""
        self.state("points", re.compile("^[1-9]"))
        self.press("p")

    def state(self, key: str, value: str | re.Pattern[str]) -> None:
        """Wait until <body> has that state."""
        expect(self.page.locator("body")).to_have_attribute(f"data-{key}", value)

    def leaves(self, key: str, value: str) -> None:
        """Wait until <body> has another state than that: it is drawn in the next frame."""
        expect(self.page.locator("body")).not_to_have_attribute(f"data-{key}", value)

    def reaches(self, key: str, least: int) -> None:
        """Wait until <body> has that number or a larger one: a loaded host skips many."""
        until(lambda: int(self.now(key)), f"{key} {least}", so=lambda now: now >= least)

    def now(self, key: str) -> str:
        """That state now."""
        return str(self.page.locator("body").get_attribute(f"data-{key}"))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def shows(self, selector: str, *texts: str | re.Pattern[str]) -> None:
        """Wait until the element has the texts in it."""
        has(self.page.locator(selector), *texts)

    def complained(self, *allowed: str) -> list[str]:
        """Complaints other than those with such words, and those about the host's network, which
        other tests' containers change."""
        words = (*allowed, "ERR_NETWORK_CHANGED")
        return [one for one in self.complaints if not any(word in one for word in words)]

    def _console(self, message: Any) -> None:
        # A violation of the page's policy is an error there, too.
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.foreign.append(request.url)


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expected

    expected.set_options(timeout=WAIT_MS)
    return expected(locator)


def has(locator: Any, *texts: str | re.Pattern[str]) -> None:
    """Wait until the element has the texts in it."""
    for text in texts:
        expect(locator).to_contain_text(text)


def ink(page: Any, box: str) -> dict[str, int]:
    """Pixels drawn on the canvas in `box`, and the sum of their colours."""
    script = """box => {
        const canvas = document.querySelector(box + " canvas");
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let drawn = 0, light = 0;
        for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3]) { drawn += 1; light += data[at] + data[at + 1] + data[at + 2]; }
        }
        return JSON.stringify({drawn, light: Math.round(light / Math.max(drawn, 1))});
    }"""
    found: dict[str, int] = json.loads(page.evaluate(script, box))
    return found

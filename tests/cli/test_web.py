"""`dlsched web` as a command: what it prints, what a browser is given, and its end."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlparse

import httpx2
import pytest

from dlsched.cli.web import _browser, _opened
from tests.cli.conftest import Program
from tests.status_source import FakeSource
from tests.waiting import until


@pytest.mark.timed
def test_a_port_that_is_taken_is_one_line_and_1(program: Program, daemon: FakeSource) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = program("web", "--no-open", "--port", str(port))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: listen: 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_the_address_and_ends_cleanly_with_an_open_stream(
    daemon: FakeSource, folders: Path, number: signal.Signals
) -> None:
    words = [sys.executable, "-m", "dlsched", "web", "--no-open"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        url, _, token = address.partition("/#")
        port = urlparse(url).port
        answer = httpx2.post(f"{url}/enter", headers={"X-Dlsched-Token": token}, timeout=60)
        stream = f"{url}{answer.json()['path']}v1/stream"
        with httpx2.stream("GET", stream, cookies=answer.cookies, timeout=60) as followed:
            next(followed.iter_raw())
            process.send_signal(number)
            rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    forward, works = said.splitlines()
    assert forward.startswith(f"elsewhere: ssh -L {port}:127.0.0.1:{port} ")
    assert works == "it works once; Ctrl-C ends it"


# ------------------------------------------------------------------------------ browsers


class Browser(webbrowser.BaseBrowser):
    """Notes what it is given, as everybody on the host could read it."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.given.append(url)
        return True


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    """A person's display with a browser."""
    one = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: one)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("SSH_CONNECTION", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return one


@pytest.mark.timed
def test_a_browser_gets_the_token_in_a_file_for_this_user_alone(browser: Browser) -> None:
    with _opened("http://127.0.0.1:1/#secret", wanted=True) as opened:
        assert opened
        until(lambda: bool(browser.given), "the browser to be opened")
        [url] = browser.given
        assert url.startswith("file:///")
        assert "secret" not in url
        file = Path(unquote(urlparse(url).path))
        assert "url=http://127.0.0.1:1/#secret" in file.read_text()
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not file.parent.exists()


def test_not_wanted_none_is_opened(browser: Browser) -> None:
    with _opened("http://127.0.0.1:1/#secret", wanted=False) as opened:
        assert not opened
    assert browser.given == []


@pytest.mark.parametrize("lacks", ["display", "ssh", "root", "browser"])
def test_where_none_would_be_seen_none_is_opened(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    assert _browser() is browser

    def no_browser() -> None:
        raise webbrowser.Error("no browser")

    if lacks == "display":
        monkeypatch.delenv("DISPLAY")
    elif lacks == "ssh":
        monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5 10.0.0.2 22")
    elif lacks == "root":
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    else:
        monkeypatch.setattr(webbrowser, "get", no_browser)
    assert _browser() is None

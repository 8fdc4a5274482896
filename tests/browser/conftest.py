"""Debian's Chromium, driven by Playwright; each case has a page of its own."""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.driver import Opened, Server, serving

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage")
SIZE = {"width": 1440, "height": 900}

Serve = Callable[..., Server]
Open = Callable[..., Opened]

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of unshare(2) and setns(2)."""
SET_FLAGS, IS_UP = 0x8914, 0x1
"""SIOCSIFFLAGS and IFF_UP of netdevice(7)."""


@pytest.fixture(scope="package", autouse=True)
def own_network() -> Iterator[None]:
    """A network of its own, with a loopback alone, for this thread and the processes that it
    starts. The browser drops its requests when the host's interfaces change, as containers of
    other lanes change them. Without the right to make one these cases share the host's."""
    libc = ctypes.CDLL(None)
    with Path("/proc/thread-self/ns/net").open() as before:
        if own := libc.unshare(NEW_NETWORK) == 0:
            with socket.socket() as one:
                fcntl.ioctl(one, SET_FLAGS, struct.pack("16sh14x", b"lo", IS_UP))
        yield
        if own:
            assert libc.setns(before.fileno(), NEW_NETWORK) == 0


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """The browser."""
    if importlib.util.find_spec("playwright") is None or shutil.which(CHROMIUM) is None:
        pytest.skip("no Chromium or no Playwright: `make test-browser` installs both")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """Servers that no case stops, one a scene."""
    with_scene: dict[str, Any] = {}

    def serve(scene: str) -> Server:
        if scene not in with_scene:
            context = serving(scene, tmp_path_factory.mktemp(scene))
            with_scene[scene] = (context, context.__enter__())
        server: Server = with_scene[scene][1]
        return server

    yield serve
    for context, _ in with_scene.values():
        context.__exit__(None, None, None)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Serve]:
    """A server for one case, which may stop and kill it."""
    started: list[Server] = []

    def serve(scene: str, period_s: float = 0.25) -> Server:
        server = Server(scene, tmp_path, period_s=period_s)
        server.start()
        started.append(server)
        return server

    yield serve
    for server in started:
        server.kill()


@pytest.fixture
def opened(chromium: Any, shared: Callable[[str], Server]) -> Iterator[Open]:
    """Opens pages of a server, or of a scene. At the end none may have asked another origin, or
    complained but as allowed."""
    pages: list[tuple[Opened, tuple[str, ...], Any]] = []

    def open_(
        given: Server | str, *, allowed: tuple[str, ...] = (), theme: str = "light"
    ) -> Opened:
        server = shared(given) if isinstance(given, str) else given
        context = chromium.new_context(color_scheme=theme, viewport=SIZE)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        one = Opened(context.new_page(), server.url)
        pages.append((one, allowed, context))
        return one

    yield open_
    for one, allowed, context in pages:
        context.close()
        assert one.foreign == []
        assert one.complained(*allowed) == []


@pytest.fixture
def visit(opened: Open) -> Open:
    """Opens a page and waits until it shows jobs."""

    def go(given: Server | str, link: str = "", **more: Any) -> Opened:
        one = opened(given, **more)
        one.go(link)
        return one

    return go

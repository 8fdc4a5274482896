"""A real server on unix sockets over a fake source."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from dlsched.api.client import Daemon
from dlsched.api.routes import build_app
from dlsched.api.server import ApiServer
from tests.status_source import FakeSource, example_report


@contextmanager
def kept_port() -> Iterator[int]:
    """A port that no other program is given meanwhile; a server may listen on it."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


@pytest.fixture
def source() -> FakeSource:
    return FakeSource(example_report())


@contextmanager
def serving(folder: Path, source: FakeSource | None = None, **more: Any) -> Iterator[ApiServer]:
    """A server on sockets in that folder; without a source before its first cycle."""
    server = ApiServer(source or FakeSource(), folder, **more)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def client_of(path: Path) -> httpx2.Client:
    """A client of the server on that socket."""
    transport = httpx2.HTTPTransport(uds=str(path))
    return httpx2.Client(transport=transport, base_url="http://dlsched", timeout=60)


def answers(client: httpx2.Client, job: str) -> dict[str, httpx2.Response]:
    """Every answer that can be read, by its path, with what it has of that job."""
    found = {}
    for route in build_app(FakeSource()).routes:
        assert isinstance(route, Route)
        if "GET" in (route.methods or ()):
            path = route.path.replace("{name}", job).replace("{path:path}", "style.css")
            found[path] = client.get(f"{path}?follow=0" if path.endswith("stream") else path)
    return found


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def server(source: FakeSource, tmp_path: Path) -> Iterator[ApiServer]:
    with serving(tmp_path, source) as server:
        yield server


@pytest.fixture
def daemon(server: ApiServer) -> Daemon:
    return Daemon(server.control_path.parent)

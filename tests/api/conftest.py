"""A real server on unix sockets over a fake source."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlsched.api.client import Daemon
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


@pytest.fixture
def server(source: FakeSource, tmp_path: Path) -> Iterator[ApiServer]:
    server = ApiServer(source, tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def daemon(server: ApiServer) -> Daemon:
    return Daemon(server.control_path.parent)

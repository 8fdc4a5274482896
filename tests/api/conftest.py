"""A real server on unix sockets over a fake source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.api.client import Daemon
from dlsched.api.server import ApiServer
from tests.status_source import FakeSource, example_report


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

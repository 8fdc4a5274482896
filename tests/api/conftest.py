"""A real server on unix sockets over a fake source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.api import ApiServer
from dlsched.api.client import Daemon
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
def daemon(server: ApiServer) -> Iterator[Daemon]:
    with Daemon(server.control_path.parent) as daemon:
        yield daemon

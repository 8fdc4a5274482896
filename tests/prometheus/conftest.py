"""Debian's Prometheus, unpacked and not installed: no service of it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.daemon.forked import session
from tools import debian
from tools.environment import BUILD, ROOT
from tools.session import Session

CONFIG = ROOT / "config" / "prometheus"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of `prometheus` and `promtool`."""
    debian.unpack("prometheus", BUILD / "prometheus", "the tests of metrics and alerts")
    return BUILD / "prometheus" / "usr" / "bin"


@pytest.fixture
def node(
    docker_client: docker.APIClient, base_image: str, docker_host: str, monkeypatch: Any
) -> Iterator[Session]:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with session() as one:
        yield one

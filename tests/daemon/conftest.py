"""The home of a daemon on the real engine, and containers of others beside it."""

from __future__ import annotations

from collections.abc import Iterator

import docker
import pytest

from tests.daemon.forked import session
from tests.daemon.strangers import Strangers
from tools.session import Session


@pytest.fixture
def node(docker_host: str, base_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A daemon's home on the real engine; every container of it is gone afterwards."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with session() as one:
        yield one


@pytest.fixture
def strangers(node: Session, docker_client: docker.APIClient) -> Iterator[Strangers]:
    """Containers that others start; gone afterwards, as is the daemon."""
    made = Strangers(docker_client, node.instance)
    try:
        yield made
    finally:
        node.stop()
        made.close()

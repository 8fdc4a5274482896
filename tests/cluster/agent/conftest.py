"""An agent's server on loopback, its agent, and certificates of the nodes that ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlsched.api import server as api_server
from dlsched.cluster.agent.server import AgentServer
from dlsched.cluster.certificates import Certificates
from tests.cluster.agent.serving import REPORT, FakeAgent, asked, named, serving
from tests.cluster.agent.world import World
from tests.cluster.authority import Authority


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificates:
    return authority.node("node-1")


@pytest.fixture(scope="module")
def worker(authority: Authority) -> Certificates:
    return authority.node("node-2")


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def server(agent: FakeAgent, own: Certificates, port: int) -> Iterator[AgentServer]:
    with serving(agent, own, port) as made:
        yield made


@pytest.fixture
def lose_patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on the server waits half a second, where a busy host takes more to greet."""
    return lambda: monkeypatch.setattr(api_server, "ASK_WITHIN_S", 0.5)


@pytest.fixture
def archive(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates, tmp_path: Path
) -> Path:
    """Where the checkpoint is to lie that `worker` may fetch."""
    path = tmp_path / "train-e8.tar"
    agent.archives["train", 8, "node-2"] = path
    asked(manager, port, REPORT, named("node-1", "node-2"))
    return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)

"""Settings of an agent without an engine; the home of a daemon on the real one, and containers of
others beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from dlsched.config.settings import EngineSettings, Settings
from tests.daemon.forked import session
from tests.daemon.strangers import Strangers
from tools.session import Session


def settings_in(folder: Path) -> Settings:
    """Settings of an agent that reaches no engine, with all that it writes below that folder."""
    (folder / "jobs.d").mkdir()
    return Settings(
        instance="alone",
        state_dir=folder / "state",
        run_dir=folder / "run",
        watch=folder / "jobs.d",
        presets=folder / "presets.d",
        policy="none",
        engine=EngineSettings(host=f"unix://{folder}/no-engine.sock"),
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The same, below a folder of the case."""
    return settings_in(tmp_path)


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

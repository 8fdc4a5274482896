"""Fixtures of the tests on a real Docker Engine."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from dlsched.runtime.docker import background
from tests.runtime.docker.rig import Rig, options_for
from tests.runtime.docker.stand_ins import make_stand_ins


@pytest.fixture
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is begun in the background is done where it is begun."""

    def now(work: Callable[[], None], _name: str) -> None:
        work()

    monkeypatch.setattr(background, "_start", now)


@pytest.fixture
def rig(docker_host: str, base_image: str, tmp_path: Path) -> Iterator[Rig]:
    """A runtime of an instance of its own."""
    rig = Rig(options_for(docker_host, f"t{secrets.token_hex(3)}", tmp_path), docker_host)
    try:
        yield rig
    finally:
        rig.close()


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A folder with stand-ins for GPUs."""
    return make_stand_ins(tmp_path / "dev")


@pytest.fixture
def network(docker_client: docker.APIClient, changes_host_network: None) -> Iterator[str]:
    """A network in which containers have addresses; the engine may have no default one."""
    name = f"dlsched-test-{secrets.token_hex(4)}"
    docker_client.create_network(name)
    yield name
    docker_client.remove_network(name)

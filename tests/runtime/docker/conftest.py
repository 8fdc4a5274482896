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


class Background:
    """What is begun in the background is done where it is begun, unless it is held."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        """The names of what is not done yet."""
        self._waiting: list[Callable[[], None]] = []

    def start(self, work: Callable[[], None], name: str) -> None:
        if name in self.held:
            self._waiting.append(work)
        else:
            work()

    def go_on(self) -> None:
        """Do what is held, and hold nothing any more."""
        self.held = set()
        while self._waiting:
            self._waiting.pop(0)()


@pytest.fixture
def without_threads(monkeypatch: pytest.MonkeyPatch) -> Background:
    made = Background()
    monkeypatch.setattr(background, "_start", made.start)
    return made


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

"""Owns the fixtures that give tests a real Docker Engine, and the counting of tests without one.

Tests that need an engine are marked `engine`. `make test` sees to an engine; without one they are
left out and counted, or, with DLSCHED_REQUIRE_ENGINE=1, the session ends at once.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import docker
import pytest
from docker.errors import APIError
from hypothesis import settings

from tests.nvml.fixtures import nvml, nvml_stub  # noqa: F401  fixtures for every folder
from tools.base_image import BASE, ensure_base
from tools.engine import CGROUP_PARENT, MISSING, REQUIRE
from tools.engine_probe import answering_host, connect
from tools.engine_remains import cgroup_mounts
from tools.images import ensure_all

HOST = pytest.StashKey[str | None]()
LEFT_OUT = pytest.StashKey[int]()
INSTANCE_LABEL = "dlsched.instance"

# Hosts are noisy: no property is held to a time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def no_engine_reason() -> str:
    """Why there is no engine, in one line."""
    return os.environ.get(MISSING, "no Docker Engine answers on DOCKER_HOST or the usual sockets")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs an engine where none answers."""
    needing = [item for item in items if item.get_closest_marker("engine")]
    config.stash[LEFT_OUT] = 0
    config.stash[HOST] = (
        answering_host(os.environ) if needing and MISSING not in os.environ else None
    )
    if not needing or config.stash[HOST] is not None:
        return
    if os.environ.get(REQUIRE) == "1":
        raise pytest.UsageError(f"{REQUIRE}=1, but {no_engine_reason()}")
    config.stash[LEFT_OUT] = len(needing)
    for item in needing:
        item.add_marker(pytest.mark.skip(reason=no_engine_reason()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was not tested."""
    left_out = terminalreporter.config.stash.get(LEFT_OUT, 0)
    if left_out:
        terminalreporter.write_line(f"LEFT OUT: {left_out} engine tests: {no_engine_reason()}")


@pytest.fixture(scope="session")
def docker_host(request: pytest.FixtureRequest) -> str:
    """Host of the Docker Engine under test; only for tests marked `engine`."""
    host = request.config.stash[HOST]
    assert host is not None, "a test that uses an engine must be marked with pytest.mark.engine"
    return host


@pytest.fixture(scope="session")
def docker_client(docker_host: str) -> Iterator[docker.APIClient]:
    """A client of that engine, for the tests' own looks and acts."""
    with closing(connect(docker_host, timeout_s=30)) as client:
        yield client


def group_for(instance: str) -> str:
    """Parent control group for an instance's containers, inside the private engine's own."""
    return f"{os.environ.get(CGROUP_PARENT, '')}/dlsched-{instance}"


@pytest.fixture(scope="session")
def instance(docker_client: docker.APIClient) -> Iterator[str]:
    """A random `dlsched.instance`; its containers, and only those, are removed at the end."""
    name = f"test-{secrets.token_hex(4)}"
    yield name
    label = {"label": f"{INSTANCE_LABEL}={name}"}
    for container in docker_client.containers(all=True, filters=label):
        with suppress(APIError):
            docker_client.remove_container(container["Id"], force=True, v=True)
    for mount in cgroup_mounts():
        with suppress(OSError):
            Path(f"{mount}{group_for(name)}").rmdir()


@pytest.fixture(scope="session")
def cgroup_parent(instance: str) -> str:
    """A control group for this session's containers alone, removed at the session's end."""
    return group_for(instance)


@pytest.fixture(scope="session")
def base_image(docker_host: str) -> str:
    """Name of the base image (Debian with Python 3.11), which the engine has."""
    ensure_base(docker_host)
    return BASE


@pytest.fixture(scope="session")
def inference_image(docker_host: str) -> str:
    """Name of the inference example's image, which the engine has."""
    ensure_all(docker_host, ["inference"])
    return "dlsched-examples/inference:latest"


@pytest.fixture(scope="session")
def training_image(docker_host: str) -> str:
    """Name of the training example's image, which the engine has."""
    ensure_all(docker_host, ["training"])
    return "dlsched-examples/training:latest"

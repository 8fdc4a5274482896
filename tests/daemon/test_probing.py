"""`dlsched probe` beside a running daemon: what it proposes works as it stands."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import docker
import pytest
from docker.errors import APIError

from tests.daemon.forked import command
from tests.daemon.test_daemon import reaches, row
from tests.runtime.docker.probe.programs import PRINTER, SERVICE, TRAINER
from tools.base_image import BASE
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


@pytest.fixture
def services(
    node: Session, docker_client: docker.APIClient, changes_host_network: None
) -> Iterator[tuple[str, ...]]:
    """A service with a metrics page on a port that is no preset's and not exposed, one that only
    prints, and a training; names."""
    network = f"dlsched-test-{secrets.token_hex(4)}"
    docker_client.create_network(network)
    made = []
    for name, program in (("web", SERVICE), ("chat", PRINTER), ("train", TRAINER)):
        container = docker_client.create_container(
            BASE,
            ["python", "-c", program],
            name=f"{name}-{node.instance}",
            host_config=docker_client.create_host_config(network_mode=network),
        )["Id"]
        made.append(container)
        docker_client.start(container)
    try:
        yield tuple(f"{name}-{node.instance}" for name in ("web", "chat", "train"))
    finally:
        node.stop()
        for container in made:
            with suppress(APIError):
                docker_client.remove_container(container, force=True)
        docker_client.remove_network(network)


def found(node: Session, *names: str) -> list[dict[str, Any]]:
    done = command(node, "probe", *names, "--over", "1s", "--json")
    assert done.returncode == 0, done.stderr
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return listed


def test_what_is_proposed_adopts_as_it_stands(
    node: Session, services: tuple[str, ...], docker_client: docker.APIClient
) -> None:
    node.start("adaptive")
    wait_for(lambda: all(one["reading"] for one in found(node, *services)), 60, "readings")
    before = [docker_client.inspect_container(name) for name in services]
    listed = {one["name"]: one for one in found(node, *services)}
    listening = [[at["port"] for at in listed[name]["ports"]] for name in services]
    assert listening == [[18999], [], []]
    assert [docker_client.inspect_container(name) for name in services] == before
    for name in services:
        # On a busy host the reason comes first, and the time is the user's to set.
        proposal = listed[name]["proposal"].rpartition(": ")[2].replace("TIME", "1s")
        words = shlex.split(proposal)
        assert words[:3] == ["dlsched", "adopt", name]
        done = command(node, *words[1:])
        assert done.returncode == 0, done.stderr
        reaches(node, name, "running")
        if not name.startswith("train-"):  # it has printed all that it will
            wait_for(lambda name=name: row(node, name)["requests"] > 5, 60, "its requests")  # type: ignore[misc]
    for one in found(node, *services):
        assert one["managed"] == f"adopted: `dlsched why {one['name']}`"
        assert one["proposal"].startswith("nothing: adopted")

"""Two real hosts of one swarm: daemons, the controller, a training that moves between them."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.cluster.swarm.store import SwarmStore
from dlsched.runtime.docker.engine import Engine
from tests.tools.live import needs_dockerd
from tools.base_image import BASE, ensure_base
from tools.engines import EngineNodes, copy_images, swarm
from tools.hosts import DLSCHED, Host, training_file
from tools.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.engine, needs_dockerd]

JOB = "trains"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineNodes]:
    with swarm(2, 1, tmp_path_factory.mktemp("engines")) as engines:
        one, other = engines.nodes
        ensure_base(one.host)
        copy_images(one.host, other.host, [BASE])
        yield engines


@pytest.fixture
def hosts(engines: EngineNodes, tmp_path: Path) -> Iterator[list[Host]]:
    instance = f"test-{secrets.token_hex(4)}"
    made = [Host(node, tmp_path / node.name, instance) for node in engines.nodes]
    try:
        for host in made:
            host.start("run")
        made[0].start("cluster", "run")
        yield made
    finally:
        for host in made:
            host.close()


@pytest.fixture
def store(hosts: list[Host]) -> Iterator[SwarmStore]:
    with closing(Engine(hosts[0].node.host, 20.0)) as engine:
        yield SwarmStore(engine, hosts[0].instance)


def steps_of(host: Host, word: str) -> list[int]:
    notes = [line.split() for line in host.notes(JOB)]
    return [int(step) for kind, step, _ in notes if kind == word]


def test_a_training_moves_when_its_host_drains_and_goes_on_where_it_was(
    hosts: list[Host], store: SwarmStore
) -> None:
    file = hosts[0].cluster / "trains.yaml"
    file.write_text(training_file(JOB, BASE, 100_000, 1 << 20))
    wait_for(lambda: any(host.running() for host in hosts), 60, "the job to run")
    for host in hosts:
        # On a busy host a node may answer too late for once.
        wait_for(lambda host=host: is_well(host), 60, "the doctor to find all well")  # type: ignore[misc]
    source = next(host for host in hosts if host.running())
    target = next(host for host in hosts if host is not source)
    wait_for(lambda: steps_of(source, "begins") == [0], 30, "the job to begin")
    store.drain(source.node.node_id)
    wait_for(lambda: len(steps_of(target, "begins")) == 2, 90, "the job to go on on the other host")
    assert steps_of(target, "begins") == [0, *steps_of(target, "saved")]
    assert source.running() == []

    # Its agent and the controller are killed; the job runs on, and goes back with the next ones.
    target.kill("run")
    hosts[0].kill("cluster")
    target.start("run")
    hosts[0].start("cluster", "run")
    store.drain(source.node.node_id, on=False)
    store.drain(target.node.node_id)
    wait_for(lambda: len(steps_of(source, "begins")) == 3, 90, "the job to be back")
    assert steps_of(source, "begins") == [0, *steps_of(source, "saved")]
    assert target.running() == []

    file.unlink()
    wait_for(lambda: not source.running(), 60, "the withdrawn job to end")


def is_well(host: Host) -> bool:
    """By the doctor's own words there."""
    enter = ["nsenter", f"--net={host.node.namespaces.network}", DLSCHED]
    command = [*enter, "cluster", "doctor", "--json", "--config", host.settings]
    doctor = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = json.loads(doctor.stdout)
    nodes = [one["state"] for one in found if one["what"] == "node"]
    return doctor.returncode == 0 and nodes == ["ok", "ok"]

"""Containers with GPUs on cgroup v2 under systemd. The devices are stand-ins.

Who may open one is decided by a BPF program there, and what is written past the engine is systemd's
to undo.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from dlsched.model.spec import Limits
from dlsched.runtime.docker.gpus.canary import probe
from dlsched.runtime.docker.identity.labels import GPU_ACCESS
from tests.runtime.docker.limits.test_writer_engine import Agent, Make
from tests.runtime.docker.stand_ins import make_stand_ins, may_open
from tests.v2host.inside import group_of, limits_of, shell
from tools.base_image import BASE

pytestmark = [pytest.mark.v2host, pytest.mark.engine]


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A folder with stand-ins for GPUs."""
    return make_stand_ins(tmp_path / "dev")


@pytest.fixture
def legacy(docker_client: docker.APIClient, base_image: str) -> Iterator[str]:
    """A container that says of itself that its GPUs came by the hook; it has none."""
    config = {
        "Image": BASE,
        "Cmd": ["sleep", "600"],
        "Labels": {GPU_ACCESS: "legacy"},
        "HostConfig": {"NetworkMode": "none"},
    }
    name = f"legacy-{secrets.token_hex(4)}"
    made = str(docker_client.create_container_from_config(config, name)["Id"])  # type: ignore[no-untyped-call]
    docker_client.start(made)
    yield made
    docker_client.remove_container(made, force=True)


def test_a_look_sees_what_the_program_allows_and_leaves_no_trace(
    docker_client: docker.APIClient, make: Make, dev: Path
) -> None:
    node = {"PathInContainer": "/dev/nvidia0", "CgroupPermissions": "rw"}
    one = make(Devices=[{"PathOnHost": str(dev / "nvidia0"), **node}])
    procs = group_of(docker_client, one.id) / "cgroup.procs"
    before = procs.read_text()
    assert may_open(docker_client, one.id, dev) == ["nvidia0"]
    seen = probe(one.state["Pid"], one.id, [str(dev / "nvidia0"), str(dev / "nvidia1")])
    assert (seen.allowed, seen.denied) == ({str(dev / "nvidia0")}, {str(dev / "nvidia1")})
    assert procs.read_text() == before


def test_limits_change_through_the_engine_once_the_canary_lives(
    docker_client: docker.APIClient, agent: Agent, make: Make, dev: Path
) -> None:
    node = {"PathInContainer": "/dev/nvidia0", "CgroupPermissions": "rw"}
    one = make(Devices=[{"PathOnHost": str(dev / "nvidia0"), **node}])
    before = limits_of(docker_client, one.id)
    agent.hands.set(one.id, Limits(0.25), 2048)
    assert one.host_config()["CpuQuota"] == 25_000
    shell("systemctl daemon-reload")
    assert agent.hands.canary.alarm is None
    assert may_open(docker_client, one.id, dev) == ["nvidia0"]
    assert agent.give_back(one) is None
    assert limits_of(docker_client, one.id) == before
    assert may_open(docker_client, one.id, dev) == ["nvidia0"]


def test_past_the_engine_they_hold_until_systemd_writes_them_anew_and_are_written_again(
    docker_client: docker.APIClient, agent: Agent, legacy: str
) -> None:
    before = limits_of(docker_client, legacy)
    words = docker_client.inspect_container(legacy)["HostConfig"]
    agent.hands.set(legacy, Limits(0.25), 2048, burst_cores=0.05)
    held = limits_of(docker_client, legacy)
    assert (held["cpu.max"], held["cpu.max.burst"]) == ("25000 100000\n", "5000\n")
    assert held["cpu.weight"] == "79\n"
    shell("systemctl daemon-reload")
    assert limits_of(docker_client, legacy)["cpu.max"] == "max 100000\n"
    agent.hands.set(legacy, Limits(0.25), 2048, burst_cores=0.05)
    assert limits_of(docker_client, legacy) == held
    assert docker_client.inspect_container(legacy)["HostConfig"] == words
    original = agent.originals.of(legacy)
    assert original is not None
    assert agent.hands.give_back(original).failure is None
    assert limits_of(docker_client, legacy) == before

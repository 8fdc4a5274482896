"""What a real container's control group says of its memory."""

from __future__ import annotations

import secrets
from pathlib import Path

import docker
import pytest

from dlsched.runtime.docker.identity.labels import ENABLE, INSTANCE
from tests.runtime.docker.rig import Rig, fact

pytestmark = pytest.mark.engine

MIB = 1 << 20

LEAKY_CHILD = """
import os, time
kept = bytearray(24 << 20)
if os.fork() == 0:
    while True:
        kept += bytes(1 << 20)
os.wait()
with open("/tmp/cache", "wb") as file:
    for _ in range(24):
        file.write(bytes(1 << 20))
while True:
    time.sleep(1)
"""
"""Its child is killed at the limit; then it fills the page cache, and lives on."""


def test_a_child_that_is_killed_at_the_limit_is_counted_while_the_container_lives(
    rig: Rig, docker_client: docker.APIClient, cgroup_parent: str, base_image: str
) -> None:
    name = f"foreign-{secrets.token_hex(4)}"
    rig.until(lambda found: found.engine_ok)
    host = docker_client.create_host_config(
        mem_limit=64 * MIB, memswap_limit=64 * MIB, network_mode="none", cgroup_parent=cgroup_parent
    )
    container = docker_client.create_container(
        base_image,
        ["python", "-c", LEAKY_CHILD],
        name=name,
        labels={ENABLE: "true", INSTANCE: rig.options.instance},
        host_config=host,
    )["Id"]
    try:
        docker_client.start(container)
        rig.until(
            lambda found: (
                (one := fact(found, name)) is not None
                and one.memory.oom_kills == 1
                and (one.usage.memory_bytes or 0) > (one.memory.working_set_bytes or 0) + 16 * MIB
            )
        )
        found = fact(rig.observe(), name)
        assert found is not None
        memory = found.memory
        assert memory.limit_bytes == 64 * MIB
        # cgroup v1 does not say it.
        assert memory.limit_reached == Path("/sys/fs/cgroup/cgroup.controllers").exists()
        assert memory.peak_bytes is None or 63 * MIB <= memory.peak_bytes <= 64 * MIB
        assert memory.held_bytes is not None and memory.working_set_bytes is not None
        assert 24 * MIB <= memory.held_bytes <= memory.working_set_bytes < 44 * MIB
        assert docker_client.inspect_container(container)["State"]["Running"]
    finally:
        docker_client.remove_container(container, force=True)

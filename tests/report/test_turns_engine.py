"""Turns between real containers: the lock holds through a read-only mount, for any user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest
from docker.errors import APIError

from dlsched.report.turns import Turns, turn_file
from dlsched.runtime.allotment import (
    ALLOTMENT_FILE,
    IN,
    LIB,
    Allotment,
    install_reporter,
    job_dir,
    write_allotment,
)
from tests.conftest import INSTANCE_LABEL

pytestmark = pytest.mark.engine

GPU = "GPU-1"
TRIES = """
import time
from dlsched.report.granted import allotment
from dlsched.report.pacing import _turn_paths
from dlsched.report.turns import Turns
tries = []
Turns(time.monotonic, watched=False).take(
    _turn_paths(allotment()), lambda seconds: tries.append(seconds) or True
)
print("taken" if tries else "mine", flush=True)
time.sleep(600 * (not tries))
"""


@pytest.fixture
def made(docker_client: docker.APIClient) -> Iterator[list[str]]:
    containers: list[str] = []
    yield containers
    for container in containers:
        with suppress(APIError):
            docker_client.remove_container(container, force=True, v=True)


def test_one_container_at_a_time_has_the_turn_and_a_kill_gives_it_back(
    docker_client: docker.APIClient,
    instance: str,
    cgroup_parent: str,
    base_image: str,
    tmp_path: Path,
    made: list[str],
) -> None:
    lib = install_reporter(tmp_path)

    def start(job: str) -> str:
        inside = job_dir(tmp_path, job)
        write_allotment(inside, Allotment(gpu_share=0.5, gpus=(GPU,)))
        container: str = docker_client.create_container(
            base_image,
            ["python3", "-c", TRIES],
            user="12345:12345",
            environment={"PYTHONPATH": LIB, "DLSCHED_ALLOTMENT_FILE": ALLOTMENT_FILE},
            labels={INSTANCE_LABEL: instance},
            host_config=docker_client.create_host_config(
                binds=[f"{lib}:{LIB}:ro", f"{inside}:{IN}:ro"],
                network_mode="none",
                cgroup_parent=cgroup_parent,
            ),
        )["Id"]
        made.append(container)
        docker_client.start(container)
        return container

    def says(container: str) -> str:
        return next(docker_client.logs(container, stream=True, follow=True)).decode().strip()

    first = start("one")
    assert says(first) == "mine"
    assert says(start("two")) == "taken"
    asked: list[float] = []
    here = Turns(lambda: 0.0, watched=False)
    here.take([str(tmp_path / "turns" / turn_file(GPU))], lambda s: bool(asked.append(s)) or True)
    here.give()
    assert asked, "the host sees the same lock"
    docker_client.kill(first)
    docker_client.wait(first)
    assert says(start("three")) == "mine"

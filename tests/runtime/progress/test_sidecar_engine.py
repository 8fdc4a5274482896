"""The sidecar in real containers: any user, read-only image, full tmpfs, hostile writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from dlsched.model.facts import Report
from dlsched.runtime.allotment import (
    IN,
    LIB,
    OUT,
    OUT_TMPFS_OPTIONS,
    Allotment,
    container_environment,
    install_reporter,
    job_dir,
    write_allotment,
)
from dlsched.runtime.progress.sidecar import SidecarReader
from tests.conftest import INSTANCE_LABEL
from tests.waiting import until

pytestmark = pytest.mark.engine

Started = Callable[[str], tuple[str, SidecarReader]]
DEADLINE_S = 60.0


@pytest.fixture
def start(
    docker_client: docker.APIClient,
    instance: str,
    cgroup_parent: str,
    base_image: str,
    tmp_path: Path,
) -> Iterator[Started]:
    """Start a Python program as a job: no root, no right to write but to its sidecar."""
    readers: list[SidecarReader] = []
    lib = install_reporter(tmp_path)
    inbound = job_dir(tmp_path, "sidecar-test")

    def started(program: str) -> tuple[str, SidecarReader]:
        container: str = docker_client.create_container(
            base_image,
            ["python", "-c", program],
            user="12345:12345",
            environment=container_environment("sidecar-test", None, {}),
            labels={INSTANCE_LABEL: instance},
            host_config=docker_client.create_host_config(
                binds=[f"{lib}:{LIB}:ro", f"{inbound}:{IN}:ro"],
                tmpfs={OUT: OUT_TMPFS_OPTIONS},
                read_only=True,
                cap_drop=["ALL"],
                network_mode="none",
                cgroup_parent=cgroup_parent,
            ),
        )["Id"]
        docker_client.start(container)
        pid = docker_client.inspect_container(container)["State"]["Pid"]
        readers.append(SidecarReader(pid))
        return container, readers[-1]

    yield started
    for reader in readers:
        reader.close()


def read_until(reader: SidecarReader, enough: Callable[[list[Report]], Any]) -> list[Report]:
    """Every report until there are enough; fails at the deadline."""
    reports: list[Report] = []

    def read() -> Any:
        reading = reader.read(time.monotonic())
        assert (reading.problem, reading.bad_lines) == (None, 0)
        reports.extend(reading.reports)
        return enough(reports)

    until(read, "enough reports", shown=lambda: reports)
    return reports


@pytest.mark.gate
def test_a_read_only_image_and_a_user_of_its_own_report(
    start: Started, docker_client: docker.APIClient, tmp_path: Path
) -> None:
    write_allotment(job_dir(tmp_path, "sidecar-test"), Allotment(cpu_cores=0.5))
    container, reader = start("""
import time
from dlsched.report import Progress, allotment, latency
from importlib.metadata import distribution
assert distribution("dlsched_report").entry_points is not None
progress = Progress()
progress.step(1, cores=allotment().cpu_cores)
with latency.measure():
    while not allotment().stop_soon:
        time.sleep(0.01)
progress.step(2, cores=allotment().cpu_cores)
progress.checkpoint(2, "/ckpt/2")
""")
    first = read_until(reader, lambda reports: any(report.in_flight for report in reports))
    assert [each.sample.metrics for each in first if each.sample] == [(("cores", 0.5),)]
    write_allotment(job_dir(tmp_path, "sidecar-test"), Allotment(cpu_cores=1.5, stop_soon=True))
    ended = docker_client.wait(container, timeout=DEADLINE_S)
    assert ended["StatusCode"] == 0, docker_client.logs(container)
    last = read_until(reader, lambda reports: any(report.checkpoint for report in reports))
    assert [each.sample.metrics for each in last if each.sample][-1] == (("cores", 1.5),)
    assert sum(each.latency.count for each in last if each.latency) == 1


@pytest.mark.gate
def test_a_link_to_the_hosts_files_is_not_followed(
    start: Started, docker_client: docker.APIClient
) -> None:
    container, reader = start(f"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.symlink("/etc/shadow", "{OUT}/metrics.jsonl")
time.sleep(600)
""")
    reading = until(lambda: reader.read(time.monotonic()), "a problem", so=lambda one: one.problem)
    docker_client.kill(container)
    assert (reading.reports, reading.bad_lines) == ((), 0)
    assert reading.problem == (
        f"{OUT}/metrics.jsonl is a symbolic link, not a regular file: not read"
    )

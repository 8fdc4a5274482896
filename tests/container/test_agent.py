"""The agent as a container, run as docs/how-to/container.md says, beside a job on its engine."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from dlsched.api.client import Daemon
from dlsched.model.errors import DaemonUnavailable, Refused
from tests.conftest import group_for
from tests.systemd import held
from tools.engine_remains import cgroup_mounts
from tools.session import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine, pytest.mark.timeout(900)]

# What the command of docs/how-to/container.md gives it, each explained there.
CAPABILITIES = ["DAC_READ_SEARCH", "KILL", "SETGID", "SETUID", "SYS_PTRACE"]
JOB = """
name: alpha
image: {image}
network: none
user: "1000:1000"
command:
  - python
  - -c
  - |
    import time
    from dlsched.report import latency
    while True:
        with latency.measure():
            time.sleep(0.02)
cpus: {{min: 0.05, max: 1}}
target: {{latency: 50ms}}
stop: {{grace: 1s}}
"""


class Node:
    """The agent's container, its folders, and the engine that both share."""

    def __init__(self, client: docker.APIClient, instance: str, root: Path) -> None:
        self.client = client
        self.instance = instance
        self.root = root
        self.agent = ""

    def start(self, image: str, engine: str) -> None:
        """As the command of docs/how-to/container.md does, but for this test's own folders."""
        (self.root / "jobs.d").mkdir()
        settings = {
            "instance": self.instance,
            "state_dir": str(self.root / "state"),
            "run_dir": str(self.root / "run"),
            "watch": str(self.root / "jobs.d"),
            "policy": "held:HeldPolicy",
            "reserve": {"cpus": 0, "memory": "64MiB"},
            "period": "200ms",
            "engine": {"cgroup_parent": group_for("").removesuffix("/dlsched-") or None},
        }
        (self.root / "dlsched.yaml").write_text(json.dumps(settings))
        (self.root / "policies").mkdir()
        shutil.copy(Path(held.__file__), self.root / "policies")
        made = self.client.create_container(
            image,
            ["run"],
            # As hostile as a label can be to itself: the agent must not take itself for a job.
            labels={
                "dlsched.instance": self.instance,
                "dlsched.enable": "true",
                "dlsched.target.latency": "50ms",
            },
            environment={
                "PYTHONPATH": f"/opt/dlsched:{self.root}/policies",
                "DLSCHED_CONFIG": str(self.root / "dlsched.yaml"),
            },
            # The image's own test, as often as a case needs it.
            healthcheck={"interval": 1_000_000_000},
            host_config=self.client.create_host_config(
                network_mode="host",
                pid_mode="host",
                cgroupns="host",
                read_only=True,
                cap_drop=["ALL"],
                cap_add=CAPABILITIES,
                security_opt=["no-new-privileges"],
                binds=[
                    f"{engine}:/var/run/docker.sock",
                    "/sys/fs/cgroup:/sys/fs/cgroup",
                    f"{self.root}:{self.root}",
                ],
            ),
        )
        self.agent = made["Id"]
        self.client.start(self.agent)

    def rows(self) -> dict[str, dict[str, object]]:
        """What the agent says of its jobs over its socket; empty while it does not answer."""
        try:
            return {row["name"]: row for row in Daemon(self.root / "run").jobs()["jobs"]}
        except (DaemonUnavailable, Refused):
            return {}

    def log(self) -> str:
        """What the agent wrote."""
        return str(self.client.logs(self.agent).decode())

    def health(self) -> str:
        """What the engine holds of the agent, by the image's test."""
        return str(self.client.inspect_container(self.agent)["State"]["Health"]["Status"])

    def quota(self, container: str) -> int:
        """What the engine has for it; 0 and -1: none."""
        return int(self.client.inspect_container(container)["HostConfig"]["CpuQuota"])


@pytest.fixture
def node(
    docker_host: str, docker_client: docker.APIClient, image: str, instance: str
) -> Iterator[Node]:
    """The agent's container, just started; it and its jobs are gone at the end."""
    if not docker_host.startswith("unix://"):
        pytest.skip(f"the engine's socket cannot be mounted: {docker_host}")
    root = Path(tempfile.mkdtemp(prefix="dlsched-"))
    one = Node(docker_client, f"{instance}-agent", root)
    try:
        one.start(image, docker_host.removeprefix("unix://"))
        yield one
    finally:
        label = {"label": f"dlsched.instance={one.instance}"}
        for container in docker_client.containers(all=True, filters=label):
            docker_client.remove_container(container["Id"], force=True, v=True)
        shutil.rmtree(root)
        for mount in cgroup_mounts():
            with suppress(OSError):
                Path(f"{mount}{group_for(one.instance)}").rmdir()


def test_it_manages_the_container_beside_it_and_never_itself(node: Node, base_image: str) -> None:
    (node.root / "jobs.d" / "alpha.yaml").write_text(JOB.format(image=base_image))
    try:
        wait_for(lambda: node.rows().get("alpha", {}).get("requests"), 60, "requests of the job")
    except AssertionError as error:
        raise AssertionError(f"{error}: {node.rows()}\n{node.log()[-3000:]}") from error
    job = f"dlsched-{node.instance}-alpha"
    wait_for(lambda: node.quota(job) == held.CORES * 100_000, 30, "the job to be held")
    wait_for(lambda: list(node.rows()) == ["alpha"], 30, "the job alone to be told")
    wait_for(lambda: node.health() == "healthy", 60, "the image's own health check")

    def weights() -> list[int]:
        return [
            int(file.read_text())
            for mount in cgroup_mounts()
            for file in Path(f"{mount}{group_for(node.instance)}").glob("cpu.shares")
        ]

    # Cgroup v1: its own group's weight, written by the agent.
    wait_for(lambda: weights() in ([2048], []), 30, "its group's weight")

    node.client.stop(node.agent, timeout=60)
    assert node.quota(job) == 100_000, node.log()
    assert node.client.inspect_container(job)["State"]["Running"]
    ended = node.client.inspect_container(node.agent)
    assert ended["State"]["ExitCode"] == 0, node.log()
    assert ended["HostConfig"]["CpuQuota"] == 0

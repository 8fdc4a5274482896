"""examples/compose on a real engine: the agent, built and started by one command, and the service
beside it that has five labels. The service's public image cannot be had here: the base image stands
in for it and prints the lines that it prints."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml
from docker.errors import APIError

from dlsched.cli.program import UNREACHABLE
from tests.conftest import group_for
from tests.container.conftest import CONTEXT, remove_unnamed
from tests.inside import run_inside
from tools.base_image import BASE
from tools.compose import PACKAGE, ensure_compose
from tools.engine_remains import cgroup_mounts
from tools.environment import ROOT
from tools.session import wait_for
from tools.steps import SetupError
from tools.wheels import debian_wheels

EXAMPLES = ROOT / "examples" / "compose"
NOT_IN_VERSION_1 = ("name:", "    cgroup:")
"""Lines that Compose 1 does not know; engines with cgroup v1 do what the second one asks for."""
ANSWERING = [
    "python3",
    "-c",
    r"""
import time
while True:
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    at = "[GIN] 2025/01/01 - 00:00:00 | 200 |"
    print(at, '     1.5s |       127.0.0.1 | POST     "/api/chat"', flush=True)
    print(at, '   80.2µs |       127.0.0.1 | GET      "/api/tags"', flush=True)
""",
]


class Projects:
    """The examples under names, folders and an instance of their own."""

    def __init__(self, compose: Sequence[str], client: docker.APIClient, root: Path) -> None:
        self.client = client
        self.root = root
        self.instance = f"compose-{secrets.token_hex(4)}"
        self.agent = f"{self.instance}-agent"
        self._compose = compose
        self._files: dict[str, list[str]] = {}
        self._said = ""

    def add(self, name: str, service: str, changes: dict[str, Any]) -> None:
        """One example, with what this test has to have otherwise."""
        folder = self.root / "src" / "examples" / "compose"
        folder.mkdir(parents=True, exist_ok=True)
        text = (EXAMPLES / f"{name}.yaml").read_text()
        if Path(self._compose[0]).name == PACKAGE:
            lines = text.splitlines(keepends=True)
            text = "".join(line for line in lines if not line.startswith(NOT_IN_VERSION_1))
        (folder / f"{name}.yaml").write_text(text)
        override = self.root / f"{name}-override.json"
        override.write_text(json.dumps({"services": {service: changes}}))
        project = f"dlsched{name}{self.instance[-8:]}"
        self._files[name] = ["-p", project, "-f", str(folder / f"{name}.yaml"), "-f", str(override)]

    def __call__(self, name: str, *words: str) -> str:
        """Run Compose on one example; returns what it printed."""
        command = [*self._compose, *self._files[name], *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        self._said += done.stdout + done.stderr
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def dlsched(self, *words: str) -> tuple[int | None, str]:
        """`docker exec dlsched dlsched ...`."""
        code, said = run_inside(self.client, self.agent, ["dlsched", *words])
        return code, said.decode()

    def row(self, name: str) -> dict[str, Any]:
        """What the agent says of one job; empty while there is none."""
        code, said = self.dlsched("ps", "--json")
        assert code in (0, UNREACHABLE), said
        rows = json.loads(said)["jobs"] if code == 0 else ()
        return next((row for row in rows if row["name"] == name), {})

    def log(self) -> str:
        """What the agent wrote."""
        return str(self.client.logs(self.agent).decode())

    def close(self) -> None:
        for name in reversed(self._files):  # the agent gives limits back last
            with suppress(AssertionError, subprocess.TimeoutExpired):
                self(name, "down", "-v", "-t", "30")
        with suppress(APIError):
            self.client.remove_image(f"{self.instance}:latest", force=True)
        remove_unnamed(self.client, self._said)


@pytest.fixture
def projects(
    docker_host: str, docker_client: docker.APIClient, base_image: str, changes_host_network: None
) -> Iterator[Projects]:
    if not docker_host.startswith("unix://"):
        pytest.skip(f"the engine's socket cannot be mounted: {docker_host}")
    try:
        compose = ensure_compose()
    except SetupError as error:
        pytest.skip(f"there is no Compose to test the examples with: {error}")
    root = Path(tempfile.mkdtemp(prefix="dlsched-"))
    one = Projects(compose, docker_client, root)
    image = f"{one.instance}:latest"
    settings = {
        "instance": one.instance,
        "period": "200ms",
        "engine": {"cgroup_parent": group_for("").removesuffix("/dlsched-") or None},
    }
    for name in ("state", "run", "etc"):
        (root / name).mkdir()
    (root / "etc" / "dlsched.yaml").write_text(json.dumps(settings))
    shutil.copytree(ROOT / "dlsched", root / "src" / "dlsched")
    for name in CONTEXT:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, root / "src")
        elif name != "dlsched":
            shutil.copytree(ROOT / name, root / "src" / name)
    wheels = debian_wheels(str(docker_client.version()["Arch"]))
    shutil.copytree(wheels, root / "src" / "wheels")
    one.add(
        "agent",
        "agent",
        {
            "image": image,
            "container_name": one.agent,
            "restart": "no",
            "build": {"network": "none", "args": {"BASE": BASE}},
            "volumes": [
                f"{docker_host.removeprefix('unix://')}:/var/run/docker.sock",
                f"{root}/state:/var/lib/dlsched",
                f"{root}/run:/run/dlsched",
                f"{root}/etc:/etc/dlsched:ro",
            ],
        },
    )
    one.add(
        "service",
        "ollama",
        {
            "image": BASE,
            "command": ANSWERING,
            "network_mode": "none",
            "init": True,
            "labels": {"dlsched.instance": one.instance},
        },
    )
    try:
        yield one
    finally:
        one.close()
        shutil.rmtree(root)
        for mount in cgroup_mounts():
            with suppress(OSError):
                Path(f"{mount}{group_for(one.instance)}").rmdir()


def limits(client: docker.APIClient, container: str) -> tuple[int, int, int]:
    """What inspection says; what means the same is told alike."""
    host = client.inspect_container(container)["HostConfig"]
    return host["NanoCpus"], max(host["CpuQuota"], 0), host["CpuShares"] or 1024


def test_the_service_has_five_labels_and_a_public_image() -> None:
    (service,) = yaml.safe_load((EXAMPLES / "service.yaml").read_text())["services"].values()
    assert len(service["labels"]) == 5
    assert re.fullmatch(r"[a-z0-9.]+/[a-z0-9./-]+(:[a-z0-9.-]+)?", service["image"])


@pytest.mark.slow
@pytest.mark.engine
def test_one_command_starts_the_agent_which_manages_what_is_beside_it_and_never_itself(
    projects: Projects, docker_client: docker.APIClient
) -> None:
    # The service runs first: the agent's first start lists what it will manage.
    projects("service", "up", "-d")
    projects("agent", "up", "-d", "--build")
    service = projects("service", "ps", "-q", "ollama").strip()
    name = docker_client.inspect_container(service)["Name"].lstrip("/")
    plain = f"{projects.instance}-plain"
    beside = docker_client.create_container(
        BASE,
        ANSWERING,
        name=plain,
        host_config=docker_client.create_host_config(network_mode="none", init=True),
    )["Id"]
    docker_client.start(beside)
    try:
        before = {one: limits(docker_client, one) for one in (service, beside)}
        try:
            wait_for(lambda: projects.row(name).get("requests"), 60, "requests of the service")
        except AssertionError as error:
            raise AssertionError(f"{error}: {projects.row(name)}\n{projects.log()}") from error
        row = projects.row(name)
        assert row["target"]["text"] == "mean 8 s"
        assert row["measured_s"] == pytest.approx(1.5, rel=0.02)
        assert row["cpu"]["floor_cores"] == 1.0
        assert f"{name} (adopted, container {service[:12]}, no limit)" in projects.log()

        code, said = projects.dlsched("adopt", plain, "--latency", "2s", "--metrics", "ollama")
        assert (code, f"{plain}: adopted while it runs" in said) == (0, True), said
        wait_for(lambda: projects.row(plain).get("state") == "running", 30, "it to be a job")

        code, said = projects.dlsched("adopt", projects.agent, "--latency", "2s")
        assert code != 0
        assert "dlsched itself runs in this container" in said
        _, said = projects.dlsched("ps", "--json")
        assert sorted(one["name"] for one in json.loads(said)["jobs"]) == sorted([name, plain])

        projects("agent", "down", "-t", "60")
        assert {one: limits(docker_client, one) for one in (service, beside)} == before
    finally:
        docker_client.remove_container(beside, force=True, v=True)

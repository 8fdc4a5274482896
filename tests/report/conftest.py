"""A writer without a thread, for what frameworks' callbacks report, and jobs in containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import APIError

from dlsched.report import pacing
from dlsched.report import writer as writing
from dlsched.report.writer import Writer
from dlsched.runtime.allotment import (
    IN,
    LIB,
    OUT,
    OUT_TMPFS_OPTIONS,
    container_environment,
    install_reporter,
    job_dir,
)
from tests.conftest import INSTANCE_LABEL
from tests.report.jobs import told

Start = Callable[..., str]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """What this process has reported since it was asked last, without time and writer."""
    monkeypatch.delenv("RANK", raising=False)
    path = tmp_path / "metrics.jsonl"
    writer = Writer(str(path), threaded=False, monotonic=lambda: 0.0)
    monkeypatch.setattr(writing, "_current", writer)
    seen = 0

    def lines() -> list[dict[str, Any]]:
        nonlocal seen
        writer.flush()
        new = told(path)[seen:] if path.exists() else []
        seen += len(new)
        return [{key: line[key] for key in line if key not in ("t", "w")} for line in new]

    return lines


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said to be the GPU's time: each beginning and end, in order."""
    calls: list[str] = []

    class Noting:
        def __enter__(self) -> None:
            calls.append("begin")

        def __exit__(self, *_: object) -> None:
            calls.append("end")

    monkeypatch.setattr(pacing, "pace", Noting())
    return calls


@pytest.fixture
def start(
    docker_client: docker.APIClient, instance: str, cgroup_parent: str, tmp_path: Path
) -> Iterator[Start]:
    """Starts a Python program as a job of that name in a container of its own; returns its ID."""
    lib = install_reporter(tmp_path)
    made: list[str] = []

    def started(job: str, image: str, program: str, user: str | None = None, **host: Any) -> str:
        described = docker_client.inspect_image(image)["Config"]["Env"]
        path = dict(each.split("=", 1) for each in described).get("PYTHONPATH")
        container: str = docker_client.create_container(
            image,
            ["python", "-c", program],
            user=user,
            environment=container_environment(job, path, {}),
            labels={INSTANCE_LABEL: instance},
            host_config=docker_client.create_host_config(
                binds=[f"{lib}:{LIB}:ro", f"{job_dir(tmp_path, job)}:{IN}:ro"],
                tmpfs={OUT: OUT_TMPFS_OPTIONS},
                network_mode="none",
                cgroup_parent=cgroup_parent,
                **host,
            ),
        )["Id"]
        made.append(container)
        docker_client.start(container)
        return container

    yield started
    for container in made:
        with suppress(APIError):
            docker_client.remove_container(container, force=True, v=True)

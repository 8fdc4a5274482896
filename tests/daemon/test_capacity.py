"""The capacity follows the quotas around containers, on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemon.forked import session
from tests.daemon.test_daemon import inspect, runs
from tools.engine_remains import cgroup_mounts
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


@pytest.fixture
def node(docker_host: str, base_image: str) -> Iterator[Session]:
    with session() as one:
        yield one


def confine(pid: int, cores: float) -> tuple[Path, str]:
    """Put a CPU quota on the group above that process's own; the file, and what lifts it."""
    fields = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    v1 = next((path for _, names, path in fields if "cpu" in names.split(",")), None)
    path = v1 or next(path for _, names, path in fields if not names)
    for mount in cgroup_mounts():
        group = Path(f"{mount}{path}").parent
        if (group / "cpu.cfs_quota_us").exists():
            period_us = int((group / "cpu.cfs_period_us").read_text())
            (group / "cpu.cfs_quota_us").write_text(str(round(cores * period_us)))
            return group / "cpu.cfs_quota_us", "-1"
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{round(cores * 100_000)} 100000")
            return group / "cpu.max", "max"
    raise AssertionError("the container's control group is not found")


def test_a_quota_around_running_containers_changes_the_capacity(node: Session):
    node.start("fair")
    runs(node, "alpha")
    before = node.client.jobs()["node"]
    assert before["bound_by"] is None
    # No less than the ceiling of alpha: on cgroup v1 the kernel refuses a quota below one inside.
    file, unlimited = confine(inspect(node, "alpha")["State"]["Pid"], 1.0)
    try:
        wait_for(lambda: node.client.jobs()["node"]["bound_by"], 30, "the quota to be read")
        confined = node.client.jobs()["node"]
        assert "quota of 1 core of control group /" in confined["bound_by"]
        assert confined["capacity_cores"] == 1.0
        assert confined["cores"] == before["cores"], "the host has the same number"
    finally:
        with suppress(FileNotFoundError):
            file.write_text(unlimited)
    wait_for(lambda: node.client.jobs()["node"]["bound_by"] is None, 30, "the quota to be lifted")
    assert node.client.jobs()["node"] | {"used_cores": 0, "foreign_cores": 0} == before | {
        "used_cores": 0,
        "foreign_cores": 0,
        "given_cores": node.client.jobs()["node"]["given_cores"],
    }

"""The capacity follows the quotas around containers, on a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemon.forked import session
from tests.daemon.test_daemon import inspect, runs
from tools.session import Session, confine_group, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


@pytest.fixture
def node(docker_host: str, base_image: str) -> Iterator[Session]:
    with session() as one:
        yield one


def lift(file: Path) -> None:
    """Remove that quota."""
    file.write_text("-1" if file.name == "cpu.cfs_quota_us" else "max")


def test_a_quota_around_running_containers_changes_the_capacity(node: Session):
    node.start("fair")
    runs(node, "alpha")
    before = node.client.jobs()["node"]
    assert before["bound_by"] is None
    # No less than the ceiling of alpha: on cgroup v1 the kernel refuses a quota below one inside.
    file = confine_group(inspect(node, "alpha")["State"]["Pid"], 1.0)
    try:
        wait_for(lambda: node.client.jobs()["node"]["bound_by"], 30, "the quota to be read")
        confined = node.client.jobs()["node"]
        assert "quota of 1 core of control group /" in confined["bound_by"]
        assert confined["capacity_cores"] == 1.0
        assert confined["cores"] == before["cores"], "the host has the same number"
    finally:
        with suppress(FileNotFoundError):
            lift(file)
    wait_for(lambda: node.client.jobs()["node"]["bound_by"] is None, 30, "the quota to be lifted")
    assert node.client.jobs()["node"] | {"used_cores": 0, "foreign_cores": 0} == before | {
        "used_cores": 0,
        "foreign_cores": 0,
        "given_cores": node.client.jobs()["node"]["given_cores"],
    }

"""Cgroup v2 without systemd's help: an engine with the cgroupfs driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from dlsched.runtime.docker.limits.group import ParentGroup
from tests.runtime.docker.limits.test_writer_engine import Agent, Theirs
from tests.v2host.inside import group_of, limits_of, shell
from tools.base_image import BASE
from tools.engine_probe import connect
from tools.private_engine import private_engine

pytestmark = [pytest.mark.v2host, pytest.mark.engine]

GROUP = ParentGroup("v2host", "")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """A second engine beside the host's own."""
    with private_engine(tmp_path / "engines") as engine:
        shell(f"docker -H {engine.host} import - {BASE} < <(tar -C /usr/local/lib/base -c .)")
        yield engine.host


def came_back(client: docker.APIClient, agent: Agent, one: Theirs) -> bool:
    before = limits_of(client, one.id)
    agent.change(one)
    assert limits_of(client, one.id) != before
    return agent.give_back(one) is None and limits_of(client, one.id) == before


def test_limits_come_back_and_the_group_has_its_weight_and_goes(host: str, tmp_path: Path) -> None:
    with closing(connect(host, timeout_s=120)) as client:
        agent = Agent(host, tmp_path)
        assert client.info()["CgroupDriver"] == "cgroupfs"
        parent = {"CgroupParent": GROUP.name("cgroupfs")}
        quota = {"CpuQuota": 37_777, "CpuPeriod": 50_000, "CpuShares": 77, "Memory": 100_000_001}
        made = [Theirs(client, {**parent, **words}) for words in (quota, {"NanoCpus": 600_000_000})]
        for one in made:
            assert came_back(client, agent, one), limits_of(client, one.id)
        folder = group_of(client, made[0].id)
        assert (folder.name, folder.parent.name) == (made[0].id, "dlsched-v2host")
        assert GROUP.weigh(folder, 200, v2=True) is None
        assert (folder.parent / "cpu.weight").read_text() == "200\n"
        for one in made:
            client.remove_container(one.id, force=True)
        GROUP.remove()
        assert not folder.parent.exists()
        agent.engine.close()

"""Trees of control groups as hosts have them, with the capacity worked out by hand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlsched.runtime.host import AvailableCpu, available_cpu
from tests.runtime.cgroup.test_enclosing import ONE, TWO, Host

CPUS = 8


def quota(cores: str, group: str) -> str:
    return f"quota of {cores} of control group {group}"


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: CPUS)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("mounted", "groups", "quotas", "cpusets", "found"),
    [
        pytest.param(
            "/",
            [f"/a.slice/b.slice/c.slice/{ONE}"],
            {"/a.slice": 4, "/a.slice/b.slice": 0.5, "/a.slice/b.slice/c.slice": 2},
            {},
            AvailableCpu(8.0, 0.5, quota("0.5 cores", "/a.slice/b.slice")),
            id="the least quota is in the middle of three slices",
        ),
        pytest.param(
            "/",
            [f"/a.slice/docker-{ONE}.scope"],
            {"/a.slice": 1.5, f"/a.slice/docker-{ONE}.scope": 0.1},
            {},
            AvailableCpu(8.0, 1.5, quota("1.5 cores", "/a.slice")),
            id="a slice of systemd around a limited scope",
        ),
        pytest.param(
            "/lxc/guest",
            [f"/own/{ONE}", f"/slice/theirs/{TWO}"],
            {"/": 1.25},
            {},
            AvailableCpu(1.25, None, quota("1.25 cores", "/")),
            id="a guest of LXC with a quota on its root",
        ),
        pytest.param(
            "/",
            [f"/docker/dind/docker/{ONE}"],
            {"/docker/dind": 0.75},
            {},
            AvailableCpu(8.0, 0.75, quota("0.75 cores", "/docker/dind")),
            id="an engine inside a limited container",
        ),
        pytest.param(
            "/",
            [f"/own/{ONE}/inner"],
            {f"/own/{ONE}": 0.1, "/own": 1},
            {},
            AvailableCpu(8.0, 1.0, quota("1 core", "/own")),
            id="a process in a group inside its container",
        ),
        pytest.param(
            "/",
            [f"/own/{ONE}"],
            {"/own": 3},
            {"/own": "0-1"},
            AvailableCpu(2.0, None, "cpuset of 2 of 8 CPUs"),
            id="a cpuset that is tighter than the quota",
        ),
        pytest.param(
            "/",
            [f"/own/{ONE}"],
            {"/own": 1.5},
            {"/own": "0-1"},
            AvailableCpu(2.0, 1.5, quota("1.5 cores", "/own")),
            id="a quota that is tighter than the cpuset",
        ),
        pytest.param(
            "/",
            [f"/own/x/{ONE}"],
            {},
            {"/own": "0-5", "/own/x": "7"},
            AvailableCpu(1.0, None, "cpuset of 1 of 8 CPUs"),
            id="the inner one of two cpusets",
        ),
        pytest.param(
            "/",
            [f"/own/{ONE}"],
            {"/own": 20},
            {},
            AvailableCpu(8.0),
            id="a quota of more than the host has",
        ),
    ],
)
def test_the_capacity_of_a_tree(
    version: str,
    mounted: str,
    groups: list[str],
    quotas: Mapping[str, float],
    cpusets: Mapping[str, str],
    found: AvailableCpu,
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, version, mounted)
    host.give("/", f"0-{CPUS - 1}")
    for pid, group in enumerate(groups, 1):
        host.put(str(pid), group)
    for group, cores in quotas.items():
        host.put("other", group)
        host.limit(group, cores)
    for group, cpus in cpusets.items():
        host.put("other", group)
        host.give(group, cpus)
    assert available_cpu(host.around(*range(1, len(groups) + 1))) == found


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_two_limited_slices_are_shown_with_their_containers(version: str, tmp_path: Path) -> None:
    host = Host(tmp_path, version)
    host.put("1", f"/s/a/{ONE}")
    host.put("2", f"/s/b/{TWO}")
    for group, cores in (("/s", 3), ("/s/a", 1), ("/s/b", 2)):
        host.limit(group, cores)
    around = host.around(1, 2)
    assert str(around.quota) == quota("3 cores", "/s")
    shown = [(names, str(one)) for names, one in around.parts]
    assert shown == [
        (("c1",), quota("1 core", "/s/a")),
        (("c2",), quota("2 cores", "/s/b")),
    ]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_quota_of_a_short_period_is_in_cores(version: str, tmp_path: Path) -> None:
    host = Host(tmp_path, version)
    host.limit("/own", 1)
    folder = host.top / "own"
    if host.v2:
        (folder / "cpu.max").write_text("25000 10000\n")
    else:
        (folder / "cpu.cfs_quota_us").write_text("25000\n")
        (folder / "cpu.cfs_period_us").write_text("10000\n")
    assert str(host.around(1).quota) == quota("2.5 cores", "/own")


def test_on_a_hybrid_host_the_older_hierarchy_has_the_quota(tmp_path: Path) -> None:
    host = Host(tmp_path, "v1")
    (tmp_path / "unified").mkdir()
    mounts = host.proc / "self" / "mountinfo"
    newer = f"2 1 0:2 / {tmp_path / 'unified'} rw - cgroup2 cgroup2 rw\n"
    mounts.write_text(newer + mounts.read_text())
    (host.proc / "1" / "cgroup").write_text(f"3:cpu,cpuset:/own/{ONE}\n0::/system.slice/x\n")
    host.limit("/own", 0.5)
    assert str(host.around(1).quota) == quota("0.5 cores", "/own")

"""What the doctor says of hosts, each both ways."""

from __future__ import annotations

import grp
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from dlsched.runtime.cgroup.enclosing import Around, Quota
from dlsched.runtime.doctor.finding import Finding
from dlsched.runtime.doctor.host import (
    capacity,
    descriptors,
    folder,
    kernel,
    socket,
)


def host(tmp_path: Path, *, v2: bool, burst: bool, pressure: bool = True) -> Path:
    """A /proc with one cgroup mount."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "pressure").mkdir()
    (mount / "system.slice").mkdir(parents=True)
    kind = "cgroup2 cgroup2 rw" if v2 else "cgroup cgroup rw,cpu,cpuacct"
    (proc / "self" / "mountinfo").write_text(f"1 1 0:1 / {mount} rw - {kind}\n")
    if burst:
        name = "system.slice/cpu.max.burst" if v2 else "cpu.cfs_burst_us"
        (mount / name).write_text("0\n")
    if pressure:
        (proc / "pressure" / "cpu").write_text("some avg10=0.00\n")
    return proc


@pytest.mark.parametrize("v2", [False, True])
def test_burst(tmp_path: Path, v2: bool) -> None:
    with_it = {one.what: one for one in kernel(host(tmp_path / "a", v2=v2, burst=True))}
    without = {one.what: one for one in kernel(host(tmp_path / "b", v2=v2, burst=False))}
    assert (with_it["burst"].state, without["burst"].state) == ("ok", "warn")
    assert "Linux 5.14" in without["burst"].remedy


@pytest.mark.parametrize("v2", [False, True])
def test_the_idle_class(tmp_path: Path, v2: bool) -> None:
    proc = host(tmp_path, v2=v2, burst=True)
    without = {one.what: one for one in kernel(proc)}["idle"]
    assert (without.state, without.remedy) == ("warn", "use Linux 5.15 or later")
    (tmp_path / "cgroup" / "system.slice" / "cpu.idle").write_text("0\n")
    assert {one.what: one for one in kernel(proc)}["idle"].state == "ok"


def test_pressure(tmp_path: Path) -> None:
    states = [
        (one.state, one.remedy)
        for name, v2, pressure in (("a", True, True), ("b", True, False), ("c", False, True))
        for one in kernel(host(tmp_path / name, v2=v2, burst=True, pressure=pressure))
        if one.what == "pressure"
    ]
    assert [state for state, _ in states] == ["ok", "warn", "warn"]
    assert "psi=1" in states[1][1] and "unified_cgroup_hierarchy" in states[2][1]
    (tmp_path / "c" / "proc" / "self" / "schedstat").write_text("1 2 3\n")
    assert {one.what: one for one in kernel(tmp_path / "c" / "proc")}["pressure"].state == "ok"


def test_no_cgroup_mounts_to_be_seen(tmp_path: Path) -> None:
    assert [one.state for one in kernel(tmp_path)] == ["fail"]


def cpus(tmp_path: Path, threads_a_core: int) -> Path:
    """Topology files of the CPUs that this process may use."""
    for number, cpu in enumerate(sorted(os.sched_getaffinity(0))):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{number // threads_a_core}\n")
    return tmp_path


def test_capacity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    paired = cpus(tmp_path, threads_a_core=2)
    whole = capacity(None, 0.5, 4, paired)
    assert whole.state == "ok"
    assert whole.line.startswith("4 cores; 3.5 for ceilings, 0.5 kept for the host")
    assert "two threads of one core do less than two cores" in whole.line
    assert capacity(None, None, 4, paired).line.startswith("4 cores; 3.6 for ceilings, 0.4 kept")
    assert "2 of them divided (setting capacity); 1.5 for" in capacity(2.0, 0.5, 4, paired).line
    assert capacity(2.0, 2.0, 4, paired).state == "fail"
    assert capacity(3.0, 0.0, None, paired).state == "ok"
    assert capacity(8.0, 0.0, None, paired).state == "warn"
    other = capacity(None, 0.0, 8, paired)
    assert (other.state, "the engine's containers have 8 CPUs" in other.line) == ("warn", True)


def test_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert descriptors(64) == Finding(
        "files", "ok", "dlsched may open 4096 files; 64 jobs need up to 1536"
    )
    few = descriptors(1000)
    remedy = "raise the limit of open files (LimitNOFILE=20256), or lower max_jobs"
    assert (few.state, few.remedy) == ("warn", remedy)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    assert descriptors(10_000).state == "ok"


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder("state", tmp_path).line == f"{tmp_path} is writable"
    assert folder("run", tmp_path / "a" / "b").line == f"{tmp_path}/a/b will be created"
    (tmp_path / "file").write_text("")
    assert folder("state", tmp_path / "file" / "in").state == "fail"
    monkeypatch.setattr(os, "access", lambda *_: False)
    for path in (tmp_path, tmp_path / "a" / "b"):
        found = folder("state", path)
        assert (found.state, "state_dir" in found.remedy) == ("fail", True)


def test_sockets(tmp_path: Path) -> None:
    mine = grp.getgrgid(os.getgid()).gr_name
    other = next(one.gr_name for one in grp.getgrall() if one.gr_gid != os.getgid())
    path = tmp_path / "status.sock"
    later = socket(path, mine, "status_group", "status")
    assert (later.state, "while the daemon runs" in later.line) == ("ok", True)
    nobody = socket(path, "no-such-group", "status_group", "status")
    assert (nobody.state, "groupadd --system no-such-group" in nobody.remedy) == ("warn", True)
    path.write_text("")
    path.chmod(0o660)
    assert socket(path, mine, "status_group", "status").line == (
        f"status.sock: for root and group {mine} (status)"
    )
    assert socket(path, None, "status_group", "status").line == (
        "status.sock: for root only (status)"
    )
    assert socket(path, other, "status_group", "status").state == "warn"
    path.chmod(0o666)
    assert socket(path, mine, "status_group", "status").state == "fail"


def test_capacity_says_what_bounds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    four, paired = frozenset(range(4)), cpus(tmp_path, threads_a_core=2)
    half = Quota(0.5, tmp_path, "/lxc")

    def found(**around: Any) -> Finding:
        return capacity(None, None, 4, paired, Around(cpus=four, **around))

    bound = found(quota=half, with_us=True)
    assert bound.state == "ok"
    assert bound.line == (
        "0.5 cores; 0.25 for ceilings, 0.25 kept for the host (setting reserve); 4 threads on 2 "
        "physical cores; bounded by the quota of 0.5 cores of control group /lxc"
    )
    assert found(quota=half).line.startswith("4 cores; 0.5 for ceilings, 0.4 kept for the host")
    some = found(parts=((("web", "db"), half),))
    assert some.state == "warn"
    assert "quota of 0.5 cores of control group /lxc applies to web, db alone" in some.line
    outside = found(outside_s=12.34)
    assert outside.state == "warn"
    assert outside.line.startswith(
        "capacity unknown: the host was throttled from outside for 12.3 s since boot; 4 cores; 3.6 "
        "for ceilings"
    )
    assert found(outside_s=0.0).state == "ok"


def test_offline_cpus_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    paired = cpus(tmp_path, threads_a_core=2)
    (paired / "present").write_text("0-3\n")
    (paired / "online").write_text("0-1\n")
    assert "; 2 more CPUs are offline" in capacity(None, None, 2, paired, Around()).line

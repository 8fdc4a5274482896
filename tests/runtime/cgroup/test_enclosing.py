"""What the groups around containers allow them, on trees as the kernel writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.runtime.cgroup.enclosing import (
    OUTSIDE_WINDOW_S,
    Around,
    OutsideThrottling,
    Surroundings,
    cpu_list,
)

ONE, TWO = "1" * 64, "2" * 64


class Host:
    """A host of files with two containers, and this process in a group of its own."""

    def __init__(self, root: Path, version: str, mounted: str = "/") -> None:
        """`mounted`: the group that the mount shows as its root."""
        self.v2 = version == "v2"
        self.proc, self.top = root / "proc", root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        kind = "cgroup2 cgroup2 rw" if self.v2 else "cgroup cgroup rw,cpu,cpuset"
        (self.proc / "self" / "mountinfo").write_text(f"1 1 0:1 {mounted} {self.top} rw - {kind}\n")
        self.inside = mounted.rstrip("/")
        self.put("self", "/dlsched.service")
        self.put("1", f"/own/{ONE}")
        self.put("2", f"/slice/theirs/{TWO}")

    def put(self, pid: str, group: str) -> None:
        """A process into a group."""
        (self.proc / pid).mkdir(exist_ok=True)
        names = "0::" if self.v2 else "3:cpu,cpuset:"
        (self.proc / pid / "cgroup").write_text(f"{names}{self.inside}{group}\n")
        (self.top / group.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def limit(self, group: str, cores: float | None) -> None:
        folder = self.top / group.lstrip("/")
        quota = None if cores is None else round(cores * 50_000)
        if self.v2:
            (folder / "cpu.max").write_text(f"{'max' if quota is None else quota} 50000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{-1 if quota is None else quota}\n")
            (folder / "cpu.cfs_period_us").write_text("50000\n")

    def give(self, group: str, cpus: str) -> None:
        name = "cpuset.cpus.effective" if self.v2 else "cpuset.effective_cpus"
        (self.top / group.lstrip("/") / name).write_text(f"{cpus}\n")

    def withhold(self, seconds: float) -> None:
        """So long CPUs were withheld in all, by a quota outside."""
        unit = ("throttled_usec", 1e6) if self.v2 else ("throttled_time", 1e9)
        (self.top / "cpu.stat.local").write_text(f"{unit[0]} {round(seconds * unit[1])}\n")

    def around(self, *pids: int) -> Around:
        ids = {1: ONE, 2: TWO}
        return Surroundings(self.proc).read("/own", [(f"c{pid}", ids[pid], pid) for pid in pids])


@pytest.fixture(params=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, request.param)


@pytest.fixture(params=["v1", "v2"])
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    """One that sees the groups of a guest alone."""
    return Host(tmp_path, request.param, "/lxc/guest")


def test_a_host_without_quotas_bounds_nothing(host: Host) -> None:
    host.limit(f"/own/{ONE}", 0.1)  # a container's own limit
    host.limit("/dlsched.service", 0.2)  # ours alone
    host.limit("/own", None)
    assert host.around(1) == Around()
    assert host.around() == Around()


def test_a_quota_around_some_containers_is_no_capacity(host: Host) -> None:
    host.limit("/slice", 0.5)
    found = host.around(1, 2)
    assert found.quota is None
    (part,) = found.parts
    assert (part[0], str(part[1])) == (("c2",), "quota of 0.5 cores of control group /slice")


def test_a_quota_of_the_guest_itself_is_seen(guest: Host) -> None:
    guest.limit("/", 0.5)
    for found in (guest.around(1, 2), guest.around(), Surroundings(guest.proc).own()):
        assert str(found.quota) == "quota of 0.5 cores of control group /"
        assert found.with_us
        assert found.parts == ()


def test_without_containers_the_group_to_be_counts(host: Host) -> None:
    host.limit("/own", 0.75)
    assert str(host.around().quota) == "quota of 0.75 cores of control group /own"


def test_the_nearest_cpuset_around_the_containers_counts(host: Host) -> None:
    host.give("/", "0-63")
    assert host.around(1).cpus == frozenset(range(64))
    host.give("/own", "2-3,7")
    assert host.around(1).cpus == {2, 3, 7}
    host.give("/slice", "0")
    assert host.around(1, 2).cpus == {0, 2, 3, 7}, "together they have all of these"


def test_groups_of_another_namespace_bound_nothing(host: Host) -> None:
    host.limit("/", 0.5)
    host.put("1", f"/../other/{ONE}")
    assert host.around(1).quota is not None, "jobs to be lie below the root"
    host.put("2", f"/slice/theirs/{TWO}")
    host.limit("/", None)
    assert host.around(1, 2) == Around()


def test_without_any_control_groups_nothing_is_known(tmp_path: Path) -> None:
    found = Surroundings(tmp_path)
    assert found.read("/own", [("c1", ONE, 1)]) == Around()
    assert found.own() == Around()


def test_a_hidden_quota_shows_as_throttling_without_one(guest: Host) -> None:
    guest.withhold(1.5)
    assert guest.around(1).outside_s == 1.5
    guest.limit("/own", 0.5)
    assert guest.around(1).outside_s is None, "that quota may be why"


def test_throttling_from_outside_is_judged_over_a_window() -> None:
    seen = OutsideThrottling()
    seen.sample(0.0, 7.0)
    seen.sample(OUTSIDE_WINDOW_S - 1, 9.0)
    assert seen.ratio == 0.0
    seen.sample(OUTSIDE_WINDOW_S, 9.0)
    assert seen.ratio == 2.0 / OUTSIDE_WINDOW_S
    seen.sample(2 * OUTSIDE_WINDOW_S, 9.001)
    assert seen.ratio == 0.0, "a program loses nothing worth a word"
    seen.sample(3 * OUTSIDE_WINDOW_S, 99.0)
    assert seen.ratio > 0
    seen.sample(3 * OUTSIDE_WINDOW_S + 1, None)
    assert seen.ratio == 0.0


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", ()), ("\n", ()), ("x-3", ()), (None, ())],
)
def test_lists_of_cpus_are_read_whole_or_not(text: str | None, cpus: set[int]) -> None:
    assert cpu_list(text) == frozenset(cpus)


# ---------------------------------------------------------------------- the real kernel


@pytest.fixture
def outer() -> Iterator[Path]:
    """A real group with a fifth of a core."""
    top = Path("/sys/fs/cgroup/cpu")
    group = top / f"dlsched-test-{os.getpid()}"
    if not (top / "cpu.stat.local").exists() or os.geteuid() != 0:
        pytest.skip("root on cgroup v1 with Linux 6.6 can make such a group")
    group.mkdir()
    try:
        (group / "cpu.cfs_quota_us").write_text("20000")
        (group / "guest").mkdir()
        yield group
    finally:
        if (group / "guest").exists():
            (group / "guest").rmdir()
        group.rmdir()


@pytest.mark.process
def test_the_kernel_shows_a_hidden_quota_to_a_guest(outer: Path, tmp_path: Path) -> None:
    spin = f"open('{outer}/guest/cgroup.procs','w').write('0')\n"
    spin += "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", spin], check=True, timeout=60)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(
        f"1 1 0:1 /{outer.name}/guest {outer}/guest rw - cgroup cgroup rw,cpu\n"
    )
    found = Surroundings(tmp_path).read("/own", ())
    assert found.quota is None
    assert found.outside_s is not None and found.outside_s > 0

"""The cgroup readers, on trees as real hosts show them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dlsched.model.facts import Usage
from dlsched.runtime.cgroup.read import (
    CgroupReader,
    CgroupReading,
    Hierarchy,
    RunQueueWait,
    hierarchies,
)
from tests.waiting import until

FIXTURES = Path(__file__).parents[2] / "fixtures" / "cgroup"
PID = 4242


def tree(version: str, into: Path) -> Path:
    """A copy of a fixture tree whose mounts are where the copy is; returns its proc."""
    shutil.copytree(FIXTURES / version, into / version)
    mountinfo = into / version / "proc" / "self" / "mountinfo"
    mountinfo.write_text(mountinfo.read_text().replace("ROOT", str(into / version)))
    return into / version / "proc"


def open_descriptors() -> set[str]:
    """Of files and folders: threads that other tests have left open and close sockets."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(path.readlink()).startswith("/") and not path.readlink().is_relative_to("/proc"):
                found.add(path.name)
    return found


@pytest.fixture(params=["v1", "v2", "v2-cgroupfs"])
def proc(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    before = open_descriptors()
    yield tree(request.param, tmp_path)
    assert open_descriptors() == before, "a descriptor was left open"


def test_version_1_reads_everything_it_has(tmp_path: Path) -> None:
    with closing(CgroupReader(PID, tree("v1", tmp_path))) as reader:
        assert not reader.v2
        assert reader.read() == CgroupReading(
            usage_core_s=1.83456789,
            periods=120,
            throttled_periods=33,
            usage=Usage(memory_bytes=6_946_816),
            quota_us=37_000,
            period_us=100_000,
            shares=512,
            burst_us=11_100,
        )


def test_a_container_that_makes_groups_of_its_own_is_read_as_a_whole(proc: Path) -> None:
    file = proc / str(PID) / "cgroup"
    lines = file.read_text().splitlines()
    whole = lines[0].rpartition("/")[2]
    with closing(CgroupReader(PID, proc)) as reader:
        told = reader.read()
    file.write_text("".join(f"{line}/init.scope/x\n" for line in lines))
    with closing(CgroupReader(PID, proc)) as reader:
        assert reader.read() == CgroupReading()
    with closing(CgroupReader(PID, proc, container=whole)) as reader:
        assert reader.read() == told


def test_version_2_reads_everything_it_has(tmp_path: Path) -> None:
    with closing(CgroupReader(PID, tree("v2", tmp_path))) as reader:
        assert reader.v2
        assert reader.read() == CgroupReading(
            usage_core_s=1.834567,
            periods=120,
            throttled_periods=33,
            usage=Usage(memory_bytes=7_344_128, cpu_wait_ratio=0.125),
            quota_us=37_000,
            period_us=100_000,
            weight=20,
            burst_us=11_100,
        )


def test_version_2_under_the_cgroupfs_driver_and_a_kernel_without_burst_and_pressure(
    tmp_path: Path,
) -> None:
    with closing(CgroupReader(PID, tree("v2-cgroupfs", tmp_path))) as reader:
        assert reader.v2
        assert reader.cpu_folder.parent.name == "dlsched-default"
        assert reader.read() == CgroupReading(
            usage_core_s=2.5,
            periods=200,
            throttled_periods=50,
            usage=Usage(memory_bytes=5_242_880),
            quota_us=37_000,
            period_us=100_000,
            weight=39,
        )


def test_no_quota_reads_as_minus_one_on_both(proc: Path) -> None:
    with closing(CgroupReader(PID, proc)) as reader:
        if reader.v2:
            (reader.cpu_folder / "cpu.max").write_text("max 100000\n")
        else:
            (reader.cpu_folder / "cpu.cfs_quota_us").write_text("-1\n")
        assert (reader.read().quota_us, reader.read().period_us) == (-1, 100_000)


def test_the_files_are_read_anew_through_the_same_descriptors(proc: Path) -> None:
    with closing(CgroupReader(PID, proc)) as reader:
        descriptors = open_descriptors()
        before = reader.read().usage_core_s
        if reader.v2:
            (reader.cpu_folder / "cpu.stat").write_text("usage_usec 2000000\n")
        else:
            (reader.cpu_folder / "cpuacct.usage").write_text("2000000000\n")
        assert before != reader.read().usage_core_s == 2.0
        assert open_descriptors() == descriptors


def test_a_file_that_is_missing_or_nonsense_is_one_none(proc: Path) -> None:
    stat = next(proc.parent.glob("sys/**/cpu.stat"))
    stat.write_text("nr_periods many\nnr_throttled\nusage_usec\n\n")
    for name in ("memory.current", "memory.usage_in_bytes", "cpu.pressure"):
        for path in proc.parent.glob(f"sys/**/{name}"):
            path.unlink()
    with closing(CgroupReader(PID, proc)) as reader:
        reading = reader.read()
    assert reading.periods is None and reading.throttled_periods is None
    assert reading.usage == Usage()
    assert reading.quota_us == 37_000
    assert not reading.gone


@pytest.mark.parametrize(
    "text", ["", "some\n", "some avg10=x\n", "some avg60=1.0\n", "full avg10=1"]
)
def test_a_pressure_that_is_none(tmp_path: Path, text: str) -> None:
    proc = tree("v2", tmp_path)
    next(proc.parent.glob("sys/**/cpu.pressure")).write_text(text)
    with closing(CgroupReader(PID, proc)) as reader:
        assert reader.read().usage.cpu_wait_ratio is None


def test_a_process_that_is_gone_reads_as_gone(proc: Path) -> None:
    with closing(CgroupReader(PID + 1, proc)) as reader:
        assert reader.read().gone
        assert reader.cpu_folder is None


def test_the_version_2_mount_of_a_hybrid_host_is_not_taken_for_the_cpu_controller(
    tmp_path: Path,
) -> None:
    proc = tree("v1", tmp_path)
    assert [h.mount.name for h in hierarchies(proc) if not h.controllers] == ["unified"]
    with closing(CgroupReader(PID, proc)) as reader:
        assert "cpu,cpuacct" in reader.cpu_folder.parts


@pytest.mark.parametrize(
    ("root", "group", "folder"),
    [
        ("/", "/a/b", "/mnt/a/b"),
        ("/", "/", "/mnt"),
        ("/a", "/a/b", "/mnt/b"),
        ("/a", "/a", "/mnt"),
        ("/a", "/ab", None),
        ("/a", "/c", None),
        ("/../..", "/../../x", "/mnt/x"),
    ],
)
def test_a_mount_may_show_only_a_part(root: str, group: str, folder: str | None) -> None:
    found = Hierarchy(frozenset({"cpu"}), root, Path("/mnt")).folder(group)
    assert found == (None if folder is None else Path(folder))


def test_where_no_cpu_time_was_used_the_last_reading_holds(proc: Path) -> None:
    with closing(CgroupReader(PID, proc)) as reader:
        first = reader.read()
        assert reader.reread(first) is first
        quota = "cpu.max" if reader.v2 else "cpu.cfs_quota_us"
        (reader.cpu_folder / quota).write_text("max 50000\n" if reader.v2 else "-1\n")
        assert reader.reread(first) is first
        used = "cpu.stat" if reader.v2 else "cpuacct.usage"
        told = "usage_usec 2000000\n" if reader.v2 else "2000000000\n"
        (reader.cpu_folder / used).write_text(told)
        after = reader.reread(first)
        assert (after.usage_core_s, after.quota_us) == (2.0, first.quota_us)
        assert (after.shares, after.weight, after.burst_us) == (
            first.shares,
            first.weight,
            first.burst_us,
        )
        assert reader.read().quota_us == -1, "limits are looked at whenever all is"


def test_a_group_that_cannot_be_read_any_more_has_no_limits_either(proc: Path) -> None:
    reader = CgroupReader(PID, proc)
    first = reader.read()
    reader.close()
    assert not first.gone
    assert reader.reread(first).gone


S = 1_000_000_000
"""In nanoseconds."""


def threads(proc: Path, **waited_ns: int | str) -> None:
    """A group whose threads have waited so long since they began."""
    names = [name.removeprefix("t") for name in waited_ns]
    (proc / "tasks").write_text("".join(f"{name}\n" for name in names))
    for name, ns in zip(names, waited_ns.values(), strict=True):
        (proc / name).mkdir(exist_ok=True)
        (proc / name / "schedstat").write_text(f"5 {ns} 7\n")


def test_the_waits_of_all_threads_between_two_looks(tmp_path: Path) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=3 * S, t2=S)
    waiting.sample(10.0)
    assert waiting.ratio is None
    threads(tmp_path, t1=3 * S + S // 10, t2=S + S // 10)
    waiting.sample(12.0)
    assert waiting.ratio == pytest.approx(0.1)
    threads(tmp_path, t1=60 * S, t2=S)
    waiting.sample(112.0)
    assert waiting.ratio == pytest.approx(0.569, abs=1e-3)
    threads(tmp_path, t1=90 * S, t2=90 * S)
    waiting.sample(1112.0)
    assert waiting.ratio == pytest.approx(0.119, abs=1e-3)


def test_more_threads_than_time_count_as_always(tmp_path: Path) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=0, t2=0)
    waiting.sample(0.0)
    threads(tmp_path, t1=10 * S, t2=10 * S)
    waiting.sample(10.0)
    assert waiting.ratio == 1.0


def test_a_thread_that_is_new_or_another_of_that_number(tmp_path: Path) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=50 * S, t2=0)
    waiting.sample(0.0)
    threads(tmp_path, t1=S, t2=0, t3=S)
    waiting.sample(10.0)
    assert waiting.ratio == pytest.approx(0.1)


@pytest.mark.parametrize("told", ["", "5", "5 x 7", "5 -3 7"])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, told: str) -> None:
    waiting = RunQueueWait(tmp_path, tmp_path)
    threads(tmp_path, t1=0)
    (tmp_path / "1" / "schedstat").write_text(told)
    waiting.sample(0.0)
    waiting.sample(1.0)
    assert waiting.ratio is None
    (tmp_path / "tasks").unlink()
    waiting.sample(2.0)
    assert waiting.ratio is None


def test_of_very_many_threads_the_first_tell(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("".join(f"{n}\n" for n in range(10_000, 12_000)))
    for n in range(10_000, 12_000):
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "schedstat").write_text("0 0 0\n")
    waiting = RunQueueWait(tmp_path, tmp_path)
    waiting.sample(0.0)
    waiting.sample(1.0)
    assert waiting.ratio == 0.0


@pytest.mark.process
def test_two_that_share_a_core_wait_for_half_of_the_time(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    loop = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(2)]
    try:
        (tmp_path / "tasks").write_text(f"{busy[0].pid}\n")
        waiting = RunQueueWait(tmp_path)

        def waits() -> bool:
            waiting.sample(time.monotonic())
            return (waiting.ratio or 0.0) >= 0.3

        until(waits, "a share of 0.3", every_s=0.1, shown=lambda: waiting.ratio)
    finally:
        for one in busy:
            one.kill()
            one.wait()

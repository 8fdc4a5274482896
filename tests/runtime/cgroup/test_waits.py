"""What a container's threads wait for, on trees as kernels show them and as containers can."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.model.bottleneck import WaitFact
from dlsched.runtime.cgroup import waits
from dlsched.runtime.cgroup.waits import THREADS_MAX, WaitReader
from tests.runtime.cgroup.test_read import PID, tree

FUTEX, EPOLL, READ, FCNTL, FLOCK = 202, 232, 0, 72, 73


@pytest.fixture(autouse=True)
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = type("Machine", (), {"machine": "x86_64"})
    monkeypatch.setattr(waits.os, "uname", lambda: machine)


class Host:
    """A fixture tree with one container, whose threads are written by hand."""

    def __init__(self, version: str, folder: Path) -> None:
        self.proc = tree(version, folder)
        self.reader = WaitReader(PID, self.proc)
        [self.cpu] = {one.parent for one in self.proc.parent.rglob("cpu.stat")}
        memory = [one.parent for one in self.proc.parent.rglob("memory.usage_in_bytes")]
        self.memory = memory[0] if memory else self.cpu
        self.threads: list[int] = []

    def thread(
        self,
        number: int,
        state: str = "S",
        call: str = f"{READ} 0x3 0x0 0x0",
        ran_ms: float = 0,
        queued_ms: float = 0,
        runs: int = 0,
        ticks: int = 0,
        name: str = "python",
    ) -> None:
        folder = self.proc / str(number)
        folder.mkdir(exist_ok=True)
        if number not in self.threads:
            self.threads.append(number)
        fields = f"{number} ({name}) {state} 1 1 1 0 -1 0 0 0 0 0 5 {ticks} 0 0 20 0"
        (folder / "stat").write_text(fields)
        numbers = (round(1e6 * ran_ms), round(1e6 * queued_ms), runs)
        (folder / "schedstat").write_text(" ".join(map(str, numbers)))
        (folder / "syscall").write_text(call)

    def sample(self, now_s: float) -> WaitFact:
        listed = "".join(f"{one}\n" for one in self.threads)
        for name in ("tasks", "cgroup.threads"):
            (self.cpu / name).write_text(listed)
        return self.reader.sample(now_s)


@pytest.fixture(params=["v1", "v2", "v2-cgroupfs"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(request.param, tmp_path)


def lock(address: int) -> str:
    return f"{FUTEX} 0x{address:x} 0x189 0x0 0x0"


def test_threads_are_counted_by_what_they_wait_for(host: Host) -> None:
    for at in (0.0, 2.0):
        runs = int(at)
        host.thread(1, "D", runs=runs)
        host.thread(2, "D", runs=runs)
        host.thread(3, call=lock(16), runs=runs)
        host.thread(4, call=lock(16), runs=runs)
        host.thread(5, call=lock(32), runs=runs)
        host.thread(6, call=f"{EPOLL} 0x3 0x0 0x0", runs=runs)
        host.thread(7, "R", "running", runs=runs)
        host.thread(8, runs=runs)
        found = host.sample(at)
    assert (found.threads, found.in_disk, found.at_lock, found.free) == (8, 2, 2, 1)


def test_a_thread_that_never_runs_waits_for_no_lock(host: Host) -> None:
    host.thread(1, call=lock(16))
    host.thread(2, call=lock(16))
    assert (host.sample(0.0).at_lock, host.sample(2.0).free) == (0, 2)
    host.thread(2, call=lock(16), runs=1)
    found = host.sample(4.0)
    assert (found.at_lock, found.free) == (1, 1)
    for at in range(waits._IDLE_SAMPLES - 1):
        assert host.sample(6.0 + at).at_lock == 1
    assert host.sample(60.0).at_lock == 0


def test_a_file_lock_is_one_whatever_its_descriptor(host: Host) -> None:
    for runs in range(2):
        for thread in range(1, 4):
            host.thread(thread, call=f"{FLOCK} 0x{thread} 0x2 0x0", runs=runs)
        found = host.sample(2.0 * runs)
    assert found.at_lock == 3


def test_of_fcntl_only_the_call_that_waits_counts(host: Host) -> None:
    for runs in range(2):
        host.thread(1, call=f"{FCNTL} 0x3 0x7 0x0", runs=runs)
        host.thread(2, call=f"{FCNTL} 0x3 0x3 0x0", runs=runs)
        found = host.sample(2.0 * runs)
    assert found.at_lock == 1


def test_sums_begin_with_the_first_sample(host: Host) -> None:
    host.thread(1, ran_ms=5000, queued_ms=9000, ticks=700)
    first = host.sample(10.0)
    assert (first.queued_s, first.kernel_s, first.busiest) == (0.0, 0.0, 0.0)
    host.thread(1, ran_ms=5500, queued_ms=10_000, ticks=750)
    host.thread(2, ran_ms=100, queued_ms=250)  # a new thread counts whole
    found = host.sample(12.0)
    assert found.queued_s == pytest.approx(1.25)
    assert found.kernel_s == pytest.approx(0.5)
    assert found.busiest == pytest.approx(0.75)
    host.threads.remove(1)  # an ended one takes nothing away
    assert host.sample(14.0).queued_s == pytest.approx(1.25)


def test_of_many_threads_a_part_stands_for_all(host: Host) -> None:
    for number in range(1, 4 * THREADS_MAX + 1):
        host.thread(number, "D")
    found = host.sample(0.0)
    assert (found.threads, found.in_disk) == (4 * THREADS_MAX, 4 * THREADS_MAX)
    assert THREADS_MAX // 2 <= len(host.reader._threads) <= 2 * THREADS_MAX


@pytest.mark.parametrize("more", [1, 40])
def test_of_many_the_same_ones_are_read_when_others_begin_and_end(host: Host, more: int) -> None:
    """What a thread waited before it was first read is of another time."""
    for number in range(1001, 1001 + THREADS_MAX + 8):
        host.thread(number, call=lock(16), ran_ms=9e6, queued_ms=7e6, runs=5, ticks=900_000)
    host.sample(0.0)
    for number in range(1, 1 + more):
        host.thread(number)
        host.threads.insert(0, host.threads.pop())
    found = host.sample(2.0)
    assert (found.queued_s, found.kernel_s, found.busiest, found.at_lock) == (0.0, 0.0, 0.0, 0)
    del host.threads[: more + 5]
    assert host.sample(4.0).queued_s == 0.0


def test_of_a_list_that_is_cut_off_no_thread_is_new(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "_LIST_BYTES", 8)
    for number in range(10, 16):
        host.thread(number, queued_ms=7e6)
    host.sample(0.0)
    host.threads = host.threads[3:]
    assert host.sample(2.0).queued_s == 0.0


def test_a_number_that_is_another_containers_process_by_now_is_not_read(tmp_path: Path) -> None:
    reader = WaitReader(PID, tree("v1", tmp_path), container="f" * 64)
    assert (reader._tasks, reader._memory) == (None, None)


@pytest.mark.parametrize("name", ["a) D 1 (b", "\n1 (x) D 1 1", ") R 9 9 9 9 9 9 9 9 9 9 9 9 9"])
def test_a_name_is_no_field(host: Host, name: str) -> None:
    host.thread(1, "S", name=name)
    assert host.sample(0.0).in_disk == 0
    host.thread(1, "D", name=name)
    assert host.sample(1.0).in_disk == 1


def test_what_cannot_be_read_is_left_out(host: Host) -> None:
    host.thread(1, "D")
    host.thread(2, "D")
    host.thread(3, "D")
    host.thread(4, call="")
    (host.proc / "1" / "stat").unlink()  # ended meanwhile
    (host.proc / "2" / "schedstat").write_text("nonsense")
    found = host.sample(0.0)
    assert (found.threads, found.in_disk, found.at_lock) == (2, 1, 0)


def test_memory_of_version_1(tmp_path: Path) -> None:
    host = Host("v1", tmp_path)
    (host.memory / "memory.stat").write_text(
        "workingset_refault_file 1\ntotal_workingset_refault_anon 3\n"
        "total_workingset_refault_file 40\ntotal_pgmajfault 7\n"
    )
    (host.memory / "memory.failcnt").write_text("12\n")
    found = host.sample(0.0)
    assert (found.refaults, found.major_faults, found.limit_hits) == (43, 7, 12)
    assert found.memory_stall_s is None
    (host.memory / "memory.memsw.failcnt").write_text("30\n")
    assert host.sample(2.0).limit_hits == 42
    for name in ("memory.failcnt", "memory.memsw.failcnt"):
        (host.memory / name).write_text("no number\n")
    assert host.sample(4.0).limit_hits is None


def test_memory_and_pressure_of_version_2(tmp_path: Path) -> None:
    host = Host("v2", tmp_path)
    (host.cpu / "memory.stat").write_text(
        "workingset_refault_anon 5\nworkingset_refault_file 6\npgmajfault 8\n"
    )
    (host.cpu / "memory.events").write_text("low 0\nhigh 2\nmax 9\noom 0\noom_kill 0\n")
    line = "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0 total=9\n"
    (host.cpu / "memory.pressure").write_text(line)
    (host.cpu / "io.pressure").write_text(line.replace("25", "15"))
    found = host.sample(0.0)
    assert (found.refaults, found.major_faults, found.limit_hits) == (11, 8, 11)
    assert (found.memory_stall_s, found.disk_stall_s) == (2.5, 1.5)


def test_a_container_that_is_gone_has_no_threads(tmp_path: Path) -> None:
    reader = WaitReader(PID + 1, tree("v1", tmp_path))
    assert reader.sample(3.0) == WaitFact(3.0)

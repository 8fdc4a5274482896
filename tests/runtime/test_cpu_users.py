"""Who uses the host's CPU, on trees of control groups and processes as the kernel writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import CpuUser, CpuUserKind, HostCpu
from dlsched.runtime.cpu_users import (
    EVERY_S,
    GROUPS_MAX,
    NAME_CHARACTERS,
    PROCESSES_MAX,
    CpuUsers,
    Group,
    Sample,
    owner,
    process_time,
    unit_to_weigh,
)

BURNER, JOB = "b" * 64, "1" * 64
CONTAINER, UNIT, PROCESS = CpuUserKind.CONTAINER, CpuUserKind.UNIT, CpuUserKind.PROCESS
TICKS = os.sysconf("SC_CLK_TCK")


class Host:
    """A host of files, whose groups and processes use as much CPU as a case says."""

    def __init__(self, root: Path, version: str) -> None:
        self.v2 = version == "v2"
        self.proc, self.top, self.now_s = root / "proc", root / "cgroup", 100.0
        (self.proc / "self").mkdir(parents=True)
        self.top.mkdir()
        kind = "cgroup2 cgroup2 rw" if self.v2 else "cgroup cgroup rw,cpu,cpuacct"
        (self.proc / "self" / "mountinfo").write_text(f"1 1 0:1 / {self.top} rw - {kind}\n")
        self.busy(0.0)
        self.names: dict[str, str] = {}
        self.jobs = frozenset((JOB,))
        self.failure: Exception | None = None
        self.users = CpuUsers(lambda: self.now_s, self.begin, proc=self.proc)

    def begin(self, call: Callable[[], Sample], _name: str) -> Future[Sample]:
        done = Future[Sample]()
        if self.failure is None:
            done.set_result(call())
        else:
            done.set_exception(self.failure)
        return done

    def busy(self, core_s: float) -> None:
        (self.proc / "stat").write_text(f"cpu  {round(core_s * TICKS)} 0 0 9 9 0 0 0 0 0\n")

    def group(self, path: str, core_s: float) -> None:
        folder = self.top / path
        folder.mkdir(parents=True, exist_ok=True)
        if self.v2:
            (folder / "cpu.stat").write_text(f"usage_usec {round(core_s * 1e6)}\nuser_usec 1\n")
        else:
            (folder / "cpuacct.usage").write_text(f"{round(core_s * 1e9)}\n")

    def process(self, pid: int, core_s: float, name: str = "stress", start: int = 7) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        fields = ["0"] * 45
        fields[11 - 1], fields[12 - 1], fields[19 - 1] = str(round(core_s * TICKS)), "0", str(start)
        (self.proc / str(pid) / "stat").write_text(f"{pid} ({name}) R {' '.join(fields)}\n")

    def inside(self, path: str, *pids: int) -> None:
        folder = self.top / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def sampled(self) -> HostCpu | None:
        """Let a sample be taken and taken up."""
        for _ in range(2):
            self.users.sample(self.now_s, self.jobs)
        return self.users.named(self.names, self.jobs)

    def later(self) -> HostCpu | None:
        self.now_s += EVERY_S
        return self.sampled()


@pytest.fixture(params=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, request.param)


def test_containers_units_and_processes_are_named_by_size(host: Host) -> None:
    host.names = {BURNER: "burner"}
    groups = ("docker/" + BURNER, "system.slice/backup.service", "docker/" + JOB)
    for group in groups:
        host.group(group, 50.0)
    host.inside("", 1, 40)
    host.process(1, 5.0, "init")
    host.process(40, 5.0)
    assert host.sampled() is None
    for group, used in zip(groups, (62.0, 53.0, 55.0), strict=True):
        host.group(group, used)
    host.process(40, 12.0)
    host.busy(27.5)
    assert host.later() == HostCpu(
        2.75,
        (
            CpuUser(CONTAINER, "burner", pytest.approx(1.2), "burner"),
            CpuUser(PROCESS, "stress (pid 40)", pytest.approx(0.7)),
            CpuUser(UNIT, "backup.service", pytest.approx(0.3)),
        ),
    )


def test_a_sample_is_taken_every_ten_seconds_only(host: Host) -> None:
    host.group("docker/" + BURNER, 0.0)
    host.sampled()
    host.group("docker/" + BURNER, 20.0)
    host.now_s += EVERY_S / 2
    assert host.sampled() is None
    host.now_s += EVERY_S / 2
    (found,) = host.sampled().users
    assert found.cores == pytest.approx(2.0)


def test_a_small_user_is_not_named(host: Host) -> None:
    host.group("docker/" + BURNER, 0.0)
    host.sampled()
    host.group("docker/" + BURNER, 0.49)
    assert host.later() == HostCpu(0.0)


def test_a_container_that_became_a_job_is_left_out(host: Host) -> None:
    host.group("docker/" + BURNER, 0.0)
    host.sampled()
    host.group("docker/" + BURNER, 10.0)
    assert len(host.later().users) == 1
    host.jobs = frozenset((BURNER, JOB))
    assert host.users.named(host.names, host.jobs).users == ()


def test_a_container_without_a_name_gets_no_command(host: Host) -> None:
    host.group("docker/" + BURNER, 0.0)
    host.sampled()
    host.group("docker/" + BURNER, 10.0)
    assert host.later().users == (CpuUser(CONTAINER, BURNER[:12], pytest.approx(1.0)),)
    assert host.users.containers == {BURNER}
    for name in ("no command; rm -rf", "-x", "y" * NAME_CHARACTERS):
        host.names = {BURNER: name}
        assert host.users.named(host.names, host.jobs).users[0].yields_by is None


def test_the_own_container_is_not_to_be_adopted(host: Host) -> None:
    users = host.users = CpuUsers(lambda: host.now_s, host.begin, {BURNER}, host.proc)
    host.group("docker/" + BURNER, 0.0)
    host.sampled()
    host.group("docker/" + BURNER, 10.0)
    host.later()
    (found,) = users.named({BURNER: "dlsched"}, host.jobs).users
    assert (found.name, found.yields_by) == ("dlsched", None)


def test_what_is_new_or_starts_again_is_named_later(host: Host) -> None:
    host.group("system.slice/old.service", 90.0)
    host.inside("", 40)
    host.process(40, 3.0)
    host.sampled()
    host.group("system.slice/old.service", 5.0)
    host.group("docker/" + BURNER, 500.0)
    host.process(40, 30.0, start=8)
    assert host.later().users == ()
    host.group("docker/" + BURNER, 510.0)
    assert [one.cores for one in host.later().users] == [pytest.approx(1.0)]


def test_hostile_names_are_printable_and_short(host: Host) -> None:
    unit = f"system.slice/\x1b[31m{'x' * 200}.service"
    host.group(unit, 0.0)
    host.inside("", 40)
    host.process(40, 0.0, "a) R 1 (\x1b[0m\n")
    host.sampled()
    host.group(unit, 20.0)
    host.process(40, 10.0, "a) R 1 (\x1b[0m\n")
    first, second = host.later().users
    assert first.name == f" [31m{'x' * 200}"[:NAME_CHARACTERS]
    assert second.name == "a) R 1 ( [0m  (pid 40)"


def test_groups_and_processes_are_bounded(host: Host) -> None:
    for number in range(GROUPS_MAX + 20):
        host.group(f"docker/{number:064x}", 1.0)
    pids = range(10, PROCESSES_MAX + 60)
    for pid in pids:
        host.process(pid, 0.0)
    host.inside("", *pids)
    taken: list[Sample] = []
    begin = host.begin
    host.users = CpuUsers(
        lambda: 1.0, lambda call, name: begin(lambda: taken.append(call()), name), proc=host.proc
    )
    host.users.sample(1.0, host.jobs)
    (sample,) = taken
    assert GROUPS_MAX - 10 < len(sample.groups) < GROUPS_MAX
    assert [pid for pid, _ in sample.processes] == list(pids)[-PROCESSES_MAX:]


def test_a_sample_that_fails_is_tried_again(host: Host) -> None:
    host.failure = EngineUnavailable("no thread")
    assert host.sampled() is None
    host.failure = None
    host.group("docker/" + BURNER, 0.0)
    host.sampled()
    host.group("docker/" + BURNER, 10.0)
    assert len(host.later().users) == 1


def test_without_control_groups_nothing_is_known(tmp_path: Path) -> None:
    host = Host(tmp_path, "v1")
    (host.proc / "self" / "mountinfo").write_text("")
    host.users = CpuUsers(lambda: host.now_s, host.begin, proc=host.proc)
    host.sampled()
    assert host.later() is None


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", None),
        ("docker", None),
        (f"docker/{JOB}", (CONTAINER, JOB)),
        (f"system.slice/docker-{JOB}.scope", (CONTAINER, JOB)),
        (f"kubepods.slice/kubepods-pod1.slice/cri-containerd-{JOB}.scope", (CONTAINER, JOB)),
        (f"machine.slice/libpod-{JOB}.scope", (CONTAINER, JOB)),
        ("system.slice", None),
        ("system.slice/nginx.service", (UNIT, "nginx.service")),
        ("init.scope", (UNIT, "init.scope")),
        ("user.slice", None),
        ("user.slice/user-1000.slice", (UNIT, "user-1000.slice")),
        (f"docker/{JOB[:-1]}", None),
    ],
)
def test_a_group_is_a_container_a_unit_or_a_level(
    path: str, found: tuple[CpuUserKind, str] | None
) -> None:
    assert owner(tuple(path.split("/")) if path else ()) == found


ADOPTED, OWN = ("system.slice",), ("dlsched_default.slice",)


@pytest.mark.parametrize(
    ("group", "jobs", "unit"),
    [
        (("system.slice", "x.service"), {ADOPTED}, "x.service"),
        (("user.slice", "user-7.slice"), {ADOPTED, OWN}, "user.slice"),
        (("system.slice", "x.service"), {OWN}, None),
        (("system.slice", "x.service"), {ADOPTED, OWN}, None),
        (("system.slice", "docker.service"), {ADOPTED}, None),
        (("lxc", "x.service"), {ADOPTED}, None),
        (("system.slice",), {ADOPTED}, None),
        (("system.slice", "x.service"), set(), None),
    ],
)
def test_a_weight_is_proposed_where_it_helps_all_jobs(
    group: Group, jobs: set[Group], unit: str | None
) -> None:
    assert unit_to_weigh(group, jobs) == unit


@pytest.mark.parametrize("stat", [b"", b"1 (x", b"1 (x) R 1 2", b"1 )x( R" + b" 1" * 40])
def test_a_process_that_cannot_be_read_is_left_out(stat: bytes) -> None:
    assert process_time(stat) is None


def test_a_real_process_is_read() -> None:
    seen = process_time(Path("/proc/self/stat").read_bytes())
    assert seen is not None
    core_s, _, name = seen
    assert name == Path("/proc/self/comm").read_text().removesuffix("\n")
    assert 0.0 < core_s <= sum(os.times()[:2]) + 1.0

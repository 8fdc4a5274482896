"""The probe on a scratch container: on an engine of dictionaries with every fault, and for real."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.doctor.probe import probe
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.doctor.finding import Finding


class FakeEngine:
    """Keeps one container, and a cgroup v1 tree with its limits."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.group = root / "cpu" / "scratch"
        self.tagged = ["big:1", "small:1"]
        self.lacking: set[str] = set()
        self.broken: set[str] = set()
        """Images of which no container can be started."""
        self.refuses: dict[str, int] = {}
        self.deaf = False
        self.lost = False
        self.made: list[Body] = []
        self.gone: list[str] = []
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "mountinfo").write_text(
            f"1 1 0:1 / {root}/cpu rw - cgroup cgroup rw,cpu\n"
        )

    def images(self) -> list[Body]:
        sizes = {"big:1": 2000, "small:1": 10}
        return [{"RepoTags": [tag], "Size": sizes[tag]} for tag in self.tagged] + [
            {"RepoTags": None, "Size": 1}
        ]

    def create(self, name: str, body: Body) -> str:
        if self.lost:
            raise EngineUnavailable("no answer")
        self.made.append({"name": name, **body})
        return f"id-{len(self.made)}"

    def start(self, container: str) -> None:
        if self.made[-1]["Image"] in self.lacking:
            raise EngineRefused(400, 'exec: "sleep": executable file not found in $PATH')
        if self.made[-1]["Image"] in self.broken:
            raise EngineRefused(500, "no space left on device")
        (self.proc / "7").mkdir(exist_ok=True)
        (self.proc / "7" / "cgroup").write_text(f"3:cpu:/scratch\n1:name=x:/{container}\n")
        self.group.mkdir(parents=True, exist_ok=True)
        self._write("cfs_period_us", 100_000)
        self._write("shares", 1024)
        self._write("cfs_burst_us", 0)
        self._write("idle", 0)
        self._limit(self.made[-1]["HostConfig"])

    def inspect(self, container: str) -> Body:
        return {"State": {"Pid": 7}}

    def update(self, container: str, body: Body) -> None:
        for key in body.keys() & self.refuses.keys():
            raise EngineRefused(self.refuses[key], f"{key} is not taken")
        if not self.deaf:
            self._limit(body)

    def discard(self, container: str) -> None:
        self.gone.append(container)

    def _limit(self, body: Body) -> None:
        if "CpuQuota" in body:
            self._write("cfs_quota_us", body["CpuQuota"])
        if "NanoCpus" in body:
            self._write("cfs_quota_us", body["NanoCpus"] // 10_000)
        if "CpuShares" in body:
            self._write("shares", body["CpuShares"])

    def _write(self, name: str, value: int) -> None:
        (self.group / f"cpu.{name}").write_text(f"{value}\n")


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return FakeEngine(tmp_path)


def found(engine: FakeEngine) -> dict[str, Finding]:
    told: Any = engine
    return {one.what: one for one in probe(told, "lab", engine.proc)}


def test_both_dialects_are_tried_on_the_smallest_image_and_nothing_is_left(
    engine: FakeEngine,
) -> None:
    told = found(engine)
    assert {what: one.state for what, one in told.items()} == {"quota": "ok", "nano": "ok"}
    assert "small:1" in told["quota"].line and "CFS burst works" in told["quota"].line
    assert [one["HostConfig"].get("NanoCpus") for one in engine.made] == [None, 500_000_000]
    assert engine.gone == ["id-1", "id-2"]
    assert (engine.group / "cpu.shares").read_text() == "1024\n"
    for one in engine.made:
        assert one["name"].startswith("dlsched-probe-lab-")
        assert "dlsched.job" not in one["Labels"] and "dlsched.enable" not in one["Labels"]
        assert one["HostConfig"]["AutoRemove"] and one["HostConfig"]["NetworkMode"] == "none"


def test_an_image_that_lacks_the_program_is_passed_over(engine: FakeEngine) -> None:
    engine.lacking = {"small:1"}
    assert "big:1" in found(engine)["quota"].line
    assert engine.gone == ["id-1", "id-2", "id-3"], "and not tried again"


def test_images_without_the_program_leave_it_untried(engine: FakeEngine) -> None:
    engine.lacking = {"small:1", "big:1"}
    (told,) = found(engine).values()
    assert (told.what, told.state) == ("probe", "warn")
    assert told.line == "skipped: no image tried has the program `sleep`: small:1, big:1"
    assert told.remedy == "`docker pull busybox`, then run this again; jobs need no such program"
    assert engine.gone == ["id-1", "id-2"]


def test_an_engine_that_starts_nothing_fails(engine: FakeEngine) -> None:
    engine.lacking, engine.broken = {"small:1"}, {"big:1"}
    told = found(engine)
    line = "no scratch container can be started: no space left on device"
    assert {what: (one.state, one.line) for what, one in told.items()} == {
        "quota": ("fail", line),
        "nano": ("fail", line),
    }


def test_without_an_image_it_is_skipped_and_said(engine: FakeEngine) -> None:
    engine.tagged = []
    assert [one.line for one in found(engine).values()] == ["skipped: the engine has no image"]


@pytest.mark.parametrize(
    ("key", "dialect", "says"),
    [
        ("CpuQuota", "quota", "quota 0.25 cores: refused: CpuQuota is not taken"),
        ("CpuShares", "quota", "shares 512: refused: CpuShares is not taken"),
        ("NanoCpus", "nano", "0.25 CPUs: refused: NanoCpus is not taken"),
    ],
)
def test_what_the_engine_refuses_fails(
    engine: FakeEngine, key: str, dialect: str, says: str
) -> None:
    engine.refuses = {key: 409}
    told = found(engine)[dialect]
    assert (told.state, told.line) == ("fail", says)
    assert told.remedy and len(engine.gone) == 2


def test_what_the_kernel_does_not_have_afterwards_fails(engine: FakeEngine) -> None:
    engine.deaf = True
    told = found(engine)
    assert all(one.state == "fail" for one in told.values())
    assert told["quota"].line.startswith("quota 0.25 cores: accepted, but the kernel has {")


def test_a_group_that_cannot_be_found_names_the_namespaces(engine: FakeEngine) -> None:
    start = engine.start

    def hidden(container: str) -> None:
        start(container)
        (engine.proc / "7" / "cgroup").write_text("3:cpu:/\n")

    engine.start = hidden  # type: ignore[method-assign]
    told = found(engine)["quota"]
    assert told.state == "fail" and "--pid=host and --cgroupns=host" in told.remedy
    assert len(engine.gone) == 2


def test_an_engine_that_goes_away_amid_it_fails(engine: FakeEngine) -> None:
    engine.lost = True
    assert {one.state for one in found(engine).values()} == {"fail"}


def test_a_kernel_without_burst_is_said(engine: FakeEngine) -> None:
    start = engine.start

    def plain(container: str) -> None:
        start(container)
        (engine.group / "cpu.cfs_burst_us").unlink()

    engine.start = plain  # type: ignore[method-assign]
    told = found(engine)["quota"]
    assert told.state == "ok" and "; this kernel has no CFS burst;" in told.line


def test_whether_the_idle_class_can_be_had_is_said(engine: FakeEngine) -> None:
    assert found(engine)["quota"].line.endswith("; the idle class works")
    start = engine.start

    def older(container: str) -> None:
        start(container)
        (engine.group / "cpu.idle").unlink()

    engine.start = older  # type: ignore[method-assign]
    assert found(engine)["quota"].line.endswith("; this kernel has no idle class")


@pytest.mark.engine
def test_the_real_engine_passes_and_keeps_nothing(
    docker_client: docker.APIClient, docker_host: str, base_image: str
) -> None:
    instance = f"t{secrets.token_hex(3)}"
    with closing(Engine(docker_host, 30.0)) as engine:
        told = list(probe(engine, instance))
    assert [(one.what, one.state) for one in told] == [("quota", "ok"), ("nano", "ok")], told
    names = {"name": f"dlsched-probe-{instance}"}
    assert docker_client.containers(all=True, filters=names) == []

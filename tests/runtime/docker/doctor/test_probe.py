"""The probe on a scratch container: on an engine of dictionaries with every fault, and for real."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.doctor.engine import probe
from dlsched.runtime.docker.engine import Body, EngineRefused
from dlsched.runtime.doctor.finding import Finding
from tests.runtime.docker.fake_engine import FakeEngine
from tests.runtime.docker.fake_host import FakeHost

IMAGES = [
    {"RepoTags": ["big:1"], "Size": 2000},
    {"RepoTags": ["small:1"], "Size": 10},
    {"RepoTags": None, "Size": 1},
]
LACKS = EngineRefused(400, 'exec: "sleep": executable file not found in $PATH')


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngine]:
    made = FakeEngine(tmp_path)
    made.tagged = IMAGES
    yield made
    assert made.containers({}) == [], "nothing is left"


def starting(
    engine: FakeEngine,
    errors: Mapping[str, EngineRefused] = {},
    after: Callable[[FakeHost], object] = bool,
) -> None:
    """Containers of these images do not start; `after` is done to those that do."""
    start = engine.start

    def begin(container: str) -> None:
        if (error := errors.get(engine.made[-1]["Image"])) is not None:
            raise error
        start(container)
        after(engine.all[container].host)

    engine.start = begin  # type: ignore[method-assign]


def found(engine: FakeEngine) -> dict[str, Finding]:
    told: Any = engine
    return {one.what: one for one in probe(told, "lab", engine.proc)}


def test_both_dialects_are_tried_on_the_smallest_image_and_nothing_is_left(
    engine: FakeEngine,
) -> None:
    engine.update = Mock(wraps=engine.update)  # type: ignore[method-assign]
    told = found(engine)
    assert {what: one.state for what, one in told.items()} == {"quota": "ok", "nano": "ok"}
    given = [call.args[1] for call in engine.update.call_args_list]
    assert given[2:4] == [{"CpuPeriod": 100_000, "CpuQuota": -1}, {"CpuShares": 1024}]
    assert "small:1" in told["quota"].line and "CFS burst works" in told["quota"].line
    assert [one["HostConfig"].get("NanoCpus") for one in engine.made] == [None, 500_000_000]
    for one in engine.made:
        assert one["Name"].startswith("dlsched-probe-lab-")
        assert "dlsched.job" not in one["Labels"] and "dlsched.enable" not in one["Labels"]
        assert one["HostConfig"]["AutoRemove"] and one["HostConfig"]["NetworkMode"] == "none"


def test_an_image_that_lacks_the_program_is_passed_over(engine: FakeEngine) -> None:
    starting(engine, {"small:1": LACKS})
    assert "big:1" in found(engine)["quota"].line
    assert len(engine.made) == 3, "and not tried again"


def test_images_without_the_program_leave_it_untried(engine: FakeEngine) -> None:
    starting(engine, {"small:1": LACKS, "big:1": LACKS})
    (told,) = found(engine).values()
    assert (told.what, told.state) == ("probe", "warn")
    assert told.line == "skipped: no image tried has the program `sleep`: small:1, big:1"
    assert (
        told.remedy
        == "run `docker pull busybox`, then `dlsched doctor` again; only this check needs `sleep`"
    )
    assert len(engine.made) == 2


def test_an_engine_that_starts_nothing_fails(engine: FakeEngine) -> None:
    full = EngineRefused(500, "no space left on device")
    starting(engine, {"small:1": LACKS, "big:1": full})
    told = found(engine)
    line = "no scratch container can be started: no space left on device"
    assert {what: (one.state, one.line) for what, one in told.items()} == {
        "quota": ("fail", line),
        "nano": ("fail", line),
    }


def test_without_an_image_it_is_skipped_and_said(engine: FakeEngine) -> None:
    engine.tagged = []
    assert [one.line for one in found(engine).values()] == [
        "skipped: the engine has no image for a scratch container"
    ]


@pytest.mark.parametrize(
    ("key", "dialect", "says"),
    [
        ("CpuQuota", "quota", "the engine refused to set quota 0.25 cores: CpuQuota is not taken"),
        ("CpuShares", "quota", "the engine refused to set shares 512: CpuShares is not taken"),
        ("NanoCpus", "nano", "the engine refused to set 0.25 CPUs: NanoCpus is not taken"),
    ],
)
def test_what_the_engine_refuses_fails(
    engine: FakeEngine, key: str, dialect: str, says: str
) -> None:
    update = engine.update

    def refusing(container: str, body: Body) -> None:
        if key in body:
            raise EngineRefused(409, f"{key} is not taken")
        update(container, body)

    engine.update = refusing  # type: ignore[method-assign]
    told = found(engine)[dialect]
    assert (told.state, told.line) == ("fail", says)
    assert told.remedy and len(engine.made) == 2


def test_what_the_kernel_does_not_have_afterwards_fails(engine: FakeEngine) -> None:
    engine.update = Mock()  # type: ignore[method-assign]
    told = found(engine)
    assert all(one.state == "fail" for one in told.values())
    assert told["quota"].line.startswith(
        "the engine agreed to set quota 0.25 cores, but the kernel's files read {"
    )


def test_a_group_that_cannot_be_found_names_the_namespaces(engine: FakeEngine) -> None:
    def hide(host: FakeHost) -> None:
        (engine.proc / str(host.pid) / "cgroup").write_text("3:cpu:/\n")

    starting(engine, after=hide)
    told = found(engine)["quota"]
    assert told.state == "fail" and "--pid=host, --cgroupns=host" in told.remedy
    assert len(engine.made) == 2


def test_an_engine_that_goes_away_amid_it_fails(engine: FakeEngine) -> None:
    lost = Mock(side_effect=EngineUnavailable("no answer"))
    engine.create = lost  # type: ignore[method-assign]
    assert {one.state for one in found(engine).values()} == {"fail"}


def test_a_kernel_without_burst_is_said(engine: FakeEngine) -> None:
    starting(engine, after=lambda host: (host.cpu / "cpu.cfs_burst_us").unlink())
    told = found(engine)["quota"]
    assert told.state == "ok" and "; this kernel has no CFS burst;" in told.line


def test_whether_the_idle_class_can_be_had_is_said(engine: FakeEngine) -> None:
    assert found(engine)["quota"].line.endswith("; the idle class works")
    starting(engine, after=lambda host: (host.cpu / "cpu.idle").unlink())
    assert "; this kernel has no idle class (cpu.idle): low" in found(engine)["quota"].line

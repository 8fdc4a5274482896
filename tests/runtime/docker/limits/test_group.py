"""The parent group's name, weight and end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest

from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.limits import group
from dlsched.runtime.docker.limits.group import ParentGroup, give_weight_back
from dlsched.runtime.docker.watch import Watch


@pytest.mark.parametrize(
    ("driver", "under", "name"),
    [
        ("cgroupfs", "", "/dlsched-a-b"),
        ("cgroupfs", "/tests/", "/tests/dlsched-a-b"),
        ("systemd", "/tests", "dlsched_a_b.slice"),
    ],
)
def test_the_name_is_one_level_in_the_drivers_terms(driver: str, under: str, name: str) -> None:
    assert ParentGroup("a-b", under).name(driver) == name


def group_folder(tmp_path: Path, name: str, file: str, value: str) -> Path:
    container = tmp_path / name / "container"
    container.mkdir(parents=True)
    (tmp_path / name / file).write_text(f"{value}\n")
    return container


@pytest.mark.parametrize(
    ("v2", "file", "before", "weight", "after"),
    [
        (False, "cpu.shares", "1024", 4096, "4096"),
        (False, "cpu.shares", "1024", 0.1, "2"),
        (True, "cpu.weight", "100", 400, "400"),
        (True, "cpu.weight", "100", 100_000, "10000"),
    ],
)
def test_the_weight_is_in_the_kernels_unit(
    tmp_path: Path, v2: bool, file: str, before: str, weight: float, after: str
) -> None:
    container = group_folder(tmp_path, "dlsched-x", file, before)
    assert ParentGroup("x", "").weigh(container, weight, v2=v2) is None
    assert (tmp_path / "dlsched-x" / file).read_text() == after


def test_a_group_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    container = group_folder(tmp_path, "docker", "cpu.shares", "1024")
    assert ParentGroup("x", "").weigh(container, 4096, v2=False) is None
    assert (tmp_path / "docker" / "cpu.shares").read_text() == "1024\n"


def watch(cpu_folder: Path, adopted: object, weight: int, *, v2: bool) -> Watch:
    reader = SimpleNamespace(cpu_folder=cpu_folder, v2=v2)
    described = SimpleNamespace(adopted=adopted)
    return cast("Watch", SimpleNamespace(described=described, reader=reader, kernel_weight=weight))


@pytest.mark.parametrize(
    ("v2", "file", "alone", "beside"),
    [(False, "cpu.shares", "2048", "1280"), (True, "cpu.weight", "200", "49")],
)
def test_beside_adopted_containers_it_weighs_no_more_than_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, v2: bool, file: str, alone: str, beside: str
) -> None:
    """The kernel's unit on both: 1024 and 256 shares are weights 39 and 10 with older runc."""
    monkeypatch.setattr(group, "begin", lambda work, _: work())
    folder = group_folder(tmp_path, "dlsched-x", file, "1")
    follower = ParentGroup("x", "", 2.0)
    own = [watch(folder, None, one, v2=v2) for one in ((39, 10) if v2 else (1024, 256))]
    follower.follow(own)
    assert (folder.parent / file).read_text() == alone
    follower.follow([*own, watch(folder, object(), 7, v2=v2)])
    assert (folder.parent / file).read_text() == beside


@pytest.mark.parametrize(
    ("v2", "file", "after"), [(False, "cpu.shares", "1024"), (True, "cpu.weight", "100")]
)
def test_beside_adopted_containers_it_gets_back_the_weight_of_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, v2: bool, file: str, after: str
) -> None:
    """Also for a container of the idle class, whose weight was 0."""
    monkeypatch.setattr(group, "begin", lambda work, _: work())
    folder = group_folder(tmp_path, "dlsched-x", file, "1")
    watches = [watch(folder, None, 0, v2=v2), watch(folder, object(), 7, v2=v2)]
    ParentGroup("x", "", 2.0).follow(watches, given_back=True)
    assert (folder.parent / file).read_text() == after


def test_weight_follows_a_container_in_each_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "begin", lambda work, _: work())
    folder = group_folder(tmp_path, "dlsched-x", "cpu.shares", "1")
    follower = ParentGroup("x", "", 2.0)
    beside = watch(folder, object(), 7, v2=False)
    follower.follow([watch(folder, None, 0, v2=False), beside])
    follower.follow([watch(folder, None, 512, v2=False), beside], again=False)
    assert (folder.parent / "cpu.shares").read_text() == "512"


def test_group_gets_its_weight_back_where_no_agent_runs(tmp_path: Path) -> None:
    mounts = f"32 31 0:29 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu\n"
    containers: dict[str, dict[str, object]] = {
        "a" * 64: {"Pid": 11},
        "b" * 64: {"Pid": 12},
        "c" * 64: {"Pid": 0},
    }
    group_folder(tmp_path, "cpu/dlsched-x", "cpu.shares", "2")
    for container, state in containers.items():
        state["Status"] = "running" if state["Pid"] else "exited"
        (tmp_path / "cpu" / "dlsched-x" / container).mkdir()
        (tmp_path / str(state["Pid"])).mkdir()
        (tmp_path / str(state["Pid"]) / "cgroup").write_text(f"1:cpu:/dlsched-x/{container}\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(mounts)

    engine = Mock()
    engine.containers.return_value = [
        {"Id": one, "State": state["Status"]} for one, state in containers.items()
    ]
    engine.inspect.side_effect = lambda one: {"State": containers[one]}
    options = DockerOptions(instance="x", group_weight=3.0)
    give_weight_back(engine, options, tmp_path)
    assert (tmp_path / "cpu" / "dlsched-x" / "cpu.shares").read_text() == "2048"


def test_systemd_is_asked_only_where_the_weight_differs(tmp_path: Path) -> None:
    run = Mock()
    container = group_folder(tmp_path, "dlsched_x.slice", "cpu.weight", "100")
    parent = ParentGroup("x", "", None, run)
    assert parent.weigh(container, 100, v2=True) is None
    run.assert_not_called()
    assert parent.weigh(container, 400, v2=True) is None
    asked = ["systemctl", "set-property", "--runtime", "dlsched_x.slice", "CPUWeight=400"]
    assert run.call_args.args == (asked,)
    run.side_effect = subprocess.CalledProcessError(1, asked)
    refused = parent.weigh(container, 200, v2=True) or ""
    assert "exit status 1" in refused and "\n" not in refused


def test_group_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    missing = ParentGroup("x", "").weigh(tmp_path / "dlsched-x" / "c", 2048, v2=False)
    assert "No such file" in (missing or "")


def test_only_an_empty_group_of_ours_is_removed(tmp_path: Path) -> None:
    mounts = [tmp_path / name for name in ("cpu", "memory")]
    lines = [f"{n} 1 0:1 / {mount} rw - cgroup cgroup rw,x" for n, mount in enumerate(mounts)]
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text("\n".join(lines))
    for mount in mounts:
        (mount / "dlsched-x").mkdir(parents=True)
        (mount / "dlsched-y").mkdir()
    (mounts[1] / "dlsched-x" / "container").mkdir()
    ParentGroup("x", "").remove(tmp_path)
    left = [{path.name for path in mount.iterdir()} for mount in mounts]
    assert left == [{"dlsched-y"}, {"dlsched-x", "dlsched-y"}]

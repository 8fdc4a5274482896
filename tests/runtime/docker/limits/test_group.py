"""The parent group's name, weight and end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dlsched.runtime.docker.limits.group import ParentGroup


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
        (False, "cpu.shares", "1024", 4.0, "4096"),
        (False, "cpu.shares", "1024", 0.0001, "2"),
        (True, "cpu.weight", "100", 4.0, "400"),
        (True, "cpu.weight", "100", 1000.0, "10000"),
    ],
)
def test_the_weight_is_in_multiples_of_a_containers_default(
    tmp_path: Path, v2: bool, file: str, before: str, weight: float, after: str
) -> None:
    container = group_folder(tmp_path, "dlsched-x", file, before)
    assert ParentGroup("x", "").weigh(container, weight, v2=v2) is None
    assert (tmp_path / "dlsched-x" / file).read_text() == after


def test_a_group_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    container = group_folder(tmp_path, "docker", "cpu.shares", "1024")
    assert ParentGroup("x", "").weigh(container, 4.0, v2=False) is None
    assert (tmp_path / "docker" / "cpu.shares").read_text() == "1024\n"


def test_systemd_is_asked_only_where_the_weight_differs(tmp_path: Path) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> None:
        calls.append(command)

    container = group_folder(tmp_path, "dlsched_x.slice", "cpu.weight", "100")
    group = ParentGroup("x", "", run)
    assert group.weigh(container, 4.0, v2=True) is None
    assert calls == [["systemctl", "set-property", "--runtime", "dlsched_x.slice", "CPUWeight=400"]]
    (tmp_path / "dlsched_x.slice" / "cpu.weight").write_text("400\n")
    group.weigh(container, 4.0, v2=True)
    assert len(calls) == 1


def test_what_goes_wrong_is_one_line(tmp_path: Path) -> None:
    def run(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command)

    missing = ParentGroup("x", "").weigh(tmp_path / "dlsched-x" / "c", 2.0, v2=False)
    assert missing is not None and "No such file" in missing
    container = group_folder(tmp_path, "dlsched_x.slice", "cpu.weight", "100")
    refused = ParentGroup("x", "", run).weigh(container, 2.0, v2=True)
    assert refused is not None and "exit status 1" in refused and "\n" not in refused


def test_only_an_empty_group_of_ours_is_removed(tmp_path: Path) -> None:
    mounts = [tmp_path / name for name in ("cpu", "memory")]
    lines = [f"{n} 1 0:1 / {mount} rw - cgroup cgroup rw,x" for n, mount in enumerate(mounts)]
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text("\n".join(lines))
    for mount in mounts:
        (mount / "dlsched-x").mkdir(parents=True)
        (mount / "dlsched-y").mkdir()
    (mounts[1] / "dlsched-x" / "container").mkdir()
    ParentGroup("x", "", None).remove(tmp_path)
    left = [{path.name for path in mount.iterdir()} for mount in mounts]
    assert left == [{"dlsched-y"}, {"dlsched-x", "dlsched-y"}]

"""Whose a process is, by its control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.runtime.gpu.session import container_of, serves_all

OUTER, INNER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("groups", "container"),
    [
        (f"0::/docker/{OUTER}", OUTER),
        (f"0::/system.slice/docker-{OUTER}.scope", OUTER),
        (f"0::/../{OUTER}/init.scope", OUTER),
        (f"9:cpu,cpuacct:/dlsched-default/{OUTER}\n1:name=systemd:/\n", OUTER),
        (f"0::/docker/{OUTER}/docker/{INNER}", OUTER),
        ("0::/user.slice/user-1000.slice/session-1.scope", None),
        (f"0::/docker/{OUTER[:63]}", None),
        ("", None),
    ],
)
def test_a_container_is_told_by_the_outermost_id(
    tmp_path: Path, groups: str, container: str | None
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(groups)
    assert container_of(7, tmp_path) == container


def test_the_agents_own_container_is_nobodys(tmp_path: Path) -> None:
    for name, group in (("self", OUTER), ("7", f"{OUTER}/docker/{INNER}"), ("8", OUTER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(f"0::/docker/{group}")
    assert container_of(7, tmp_path) == INNER
    assert container_of(8, tmp_path) is None


def test_a_process_that_is_not_to_be_seen_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cgroup"):
        container_of(7, tmp_path)
    assert not serves_all(7, tmp_path)


def test_text_that_is_none_is_no_container(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_bytes(b"\xff\xfe:::\x00" * 5000)
    assert container_of(7, tmp_path) is None


@pytest.mark.parametrize(
    ("name", "serves"), [("nvidia-cuda-mps", True), ("nvidia-cuda-mp", False), ("python3", False)]
)
def test_the_server_of_mps_is_known_by_what_the_kernel_keeps_of_its_name(
    tmp_path: Path, name: str, serves: bool
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_text(f"{name}\n")
    assert serves_all(7, tmp_path) is serves

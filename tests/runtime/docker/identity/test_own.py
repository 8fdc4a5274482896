"""Whether the agent finds the container that it is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.runtime.docker.identity.own import own_containers

MINE, OTHER = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "found"),
    [
        (f"0::/system.slice/docker-{MINE}.scope\n", "", {MINE}),
        (
            "0::/\n",
            f"9 1 8:1 /docker/containers/{MINE}/hostname /etc/hostname rw - ext4 /dev/sda rw\n",
            {MINE},
        ),
        (
            "0::/user.slice\n",
            f"9 1 0:9 / /var/lib/docker/containers/{OTHER}/mounts/shm rw - tmpfs shm rw\n",
            set(),
        ),
    ],
)
def test_the_agents_own_container(
    tmp_path: Path, cgroup: str, mountinfo: str, found: set[str]
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(cgroup)
    (tmp_path / "self" / "mountinfo").write_text(mountinfo)
    assert own_containers(tmp_path) == found


def test_where_nothing_can_be_read_nothing_is_found(tmp_path: Path) -> None:
    assert own_containers(tmp_path) == frozenset()

"""On which interface a container is visible, whatever it has mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.runtime.wire.interfaces import _mount_of, _peer, _sysfs_mounts

PID = 7


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """The files of a process with one interface; its mounts are to be written."""
    folder = tmp_path / str(PID) / "root" / "sys/devices/virtual/net/eth0"
    folder.mkdir(parents=True)
    (folder / "iflink").write_text("42\n")
    return tmp_path / str(PID)


def mounted(container: Path, kind: str) -> None:
    """Have the kernel say that the files are on a mount of this kind."""
    descriptor = os.open(container, os.O_PATH)
    number = _mount_of(descriptor).decode()
    os.close(descriptor)
    (container / "mountinfo").write_text(
        f"{number} 1 0:21 / /sys ro - {kind} {kind} ro\n9999999 1 0:22 / /a ro - sysfs sysfs ro\n"
    )


def test_the_other_end_is_read_on_sysfs(container: Path) -> None:
    mounted(container, "sysfs")
    assert _peer(PID, "eth0", container.parent) == 42


def test_what_is_not_sysfs_is_not_walked(container: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(container, "fuse.hostile")
    opened, real = list[str](), os.open

    def opens(path: object, *arguments: object, **options: object) -> int:
        opened.append(str(path))
        return real(path, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "open", opens)
    with pytest.raises(PermissionError, match="is not sysfs"):
        _peer(PID, "eth0", container.parent)
    monkeypatch.undo()
    assert [path for path in opened if str(container) in path or "/" not in path] == [
        str(container / "root"), "sys",
    ]  # fmt: skip


@pytest.mark.parametrize("part", ["sys", "sys/devices/virtual/net", "sys/devices/virtual/net/eth0"])
def test_no_link_is_followed(container: Path, part: str) -> None:
    mounted(container, "sysfs")
    one = container / "root" / part
    one.rename(one.with_name("elsewhere"))
    one.symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        _peer(PID, "eth0", container.parent)


def test_the_name_of_a_mount_cannot_forge_another(container: Path) -> None:
    (container / "mountinfo").write_text(
        "30 29 0:21 / /a\u2028b c ro master:2 - sysfs sysfs ro\n"
        "31 29 0:22 / /proc rw - proc proc rw\n",
        encoding="utf-8",
    )
    assert _sysfs_mounts(PID, container.parent) == {b"30"}

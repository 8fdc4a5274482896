"""On which interface a container is visible, whatever it has mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.runtime.progress.mounts import mount_of
from dlsched.runtime.wire.interfaces import _peer

PID = 7


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """The files of a process with one interface; its mounts are to be written."""
    folder = tmp_path / str(PID) / "root" / "sys/devices/virtual/net/eth0"
    folder.mkdir(parents=True)
    (folder / "iflink").write_text("42\n")
    return tmp_path / str(PID)


def mounted(container: Path, kind: str) -> None:
    """Have the kernel say that the files are on a mount of this kind, and the host's, but FUSE."""
    host = Path("/proc/self/mountinfo").read_bytes().split()[2].decode()
    device = "9:x" if kind.startswith("fuse") else host
    descriptor = os.open(container, os.O_PATH)
    number = mount_of(descriptor).decode()
    os.close(descriptor)
    (container / "mountinfo").write_text(
        f"{number} 1 {device} / /sys ro - {kind} {kind} ro\n"
        "9999999 1 0:22 / /a ro - sysfs sysfs ro\n"
    )


def test_the_other_end_is_read_on_sysfs(container: Path) -> None:
    mounted(container, "sysfs")
    assert _peer(PID, "eth0", container.parent) == 42


@pytest.mark.parametrize(
    ("kind", "held", "why"),
    [("tmpfs", ["root", "sys"], "is not sysfs"), ("fuse.hostile", ["root"], "may never answer")],
)
def test_what_is_not_sysfs_is_not_walked(
    container: Path, monkeypatch: pytest.MonkeyPatch, kind: str, held: list[str], why: str
) -> None:
    mounted(container, kind)
    opened, real = list[str](), os.open

    def opens(path: object, *arguments: object, **options: object) -> int:
        opened.append(str(path))
        return real(path, *arguments, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "open", opens)
    with pytest.raises(PermissionError, match=why):
        _peer(PID, "eth0", container.parent)
    monkeypatch.undo()
    own = [path for path in opened if path == str(container / "root") or "/" not in path]
    assert [Path(path).name for path in own] == held


@pytest.mark.parametrize("part", ["sys", "sys/devices/virtual/net", "sys/devices/virtual/net/eth0"])
def test_no_link_is_followed(container: Path, part: str) -> None:
    mounted(container, "sysfs")
    one = container / "root" / part
    one.rename(one.with_name("elsewhere"))
    one.symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        _peer(PID, "eth0", container.parent)

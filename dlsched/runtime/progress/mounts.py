"""On which file systems a container's files are, as the kernel lists its mounts. The file systems
are not asked: one that a program or another host serves may never answer, and a call that waits for
it holds its thread, and so the daemon's end, for as long. A container may mount its own (FUSE)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dlsched.runtime.cgroup.read import start_of

_SERVED = ("fuse", "autofs", "9p", "nfs", "cifs", "smb", "ceph")
"""Beginnings of types of file systems that may never answer."""
_FDINFO_BYTES = 1024


class _Mount(NamedTuple):
    number: bytes
    device: bytes
    """Of its file system, which may be mounted elsewhere, too."""
    kind: str


def mount_of(descriptor: int) -> bytes:
    """The number of the mount that it is on. It is no other one's while the descriptor is open."""
    text = start_of(f"/proc/self/fdinfo/{descriptor}", _FDINFO_BYTES) or b""
    return text.partition(b"mnt_id:")[2].partition(b"\n")[0].strip()


def kind_of(descriptor: int, pid: int, proc: Path) -> str:
    """The type of the file system that it is on, in the process' view; empty: it is on no mount
    below the process' root. Raises OSError."""
    number = mount_of(descriptor)
    return next((one.kind for one in _mounts(pid, proc) if one.number == number), "")


def may_hang(descriptor: int, pid: int, proc: Path) -> bool:
    """Whether to ask its file system may never end: the container has mounted one that something
    else than the kernel serves. One that this host has mounted is trusted. Raises OSError."""
    number = mount_of(descriptor)
    found = next((one for one in _mounts(pid, proc) if one.number == number), None)
    if found is None:
        return True
    if not found.kind.startswith(_SERVED):
        return False
    return all(one.device != found.device for one in _mounts("self", Path("/proc")))


def _mounts(pid: int | str, proc: Path) -> Iterator[_Mount]:
    # Its lines end with \n alone: a path may hold any other character that ends a line.
    for line in (proc / str(pid) / "mountinfo").read_bytes().split(b"\n"):
        before, _, after = line.partition(b" - ")
        with suppress(IndexError):
            fields = before.split(b" ", 3)
            yield _Mount(fields[0], fields[2], after.split(b" ", 1)[0].decode("ascii", "replace"))

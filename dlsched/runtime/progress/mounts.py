"""On which file systems a container's files are, as the kernel lists its mounts. The file systems
are not asked: one that a program or another host serves may never answer, and a call that waits for
it holds its thread, and so the daemon's end, for as long. A container may mount its own: a FUSE, or
an overlay over one, whose type does not show it. So a mount is trusted for who made it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dlsched.runtime.cgroup.read import start_of

_IN_MEMORY = ("tmpfs", "ramfs")
"""Types of file systems that the kernel alone serves, also where a container mounts them."""
_SHORT_BYTES = 1024
"""More than the kernel writes about a descriptor's mount, or before a process' parent."""
_MOUNTS_BYTES = 1024 * 1024
"""Length of a container's list of mounts up to which it is read: a container may have 100,000. An
engine makes a few dozen, of 4 KiB at most."""


class _Mount(NamedTuple):
    number: bytes
    device: bytes
    """Of its file system, which may be mounted elsewhere, too."""
    kind: str


def mount_of(descriptor: int) -> bytes:
    """The number of the mount that it is on. It is no other one's while the descriptor is open.
    Raises OSError."""
    text = start_of(f"/proc/self/fdinfo/{descriptor}", _SHORT_BYTES) or b""
    if not (number := text.partition(b"mnt_id:")[2].partition(b"\n")[0].strip()):
        raise OSError(errno.EIO, "the kernel does not show on which mount it is")
    return number


def kind_of(descriptor: int, pid: int, proc: Path) -> str:
    """The type of the file system that it is on, in the process' view; empty: it is on no mount
    below the process' root. Raises OSError."""
    found = _mount(descriptor, pid, proc)
    return found.kind if found else ""


def may_hang(descriptor: int, pid: int, proc: Path) -> bool:
    """Whether to ask its file system may never end. What is in memory is trusted, and what this
    host or its engine has mounted, but not /proc, where some files wait for a process. `pid` is
    the container's first process. Raises OSError."""
    found = _mount(descriptor, pid, proc)
    if found is None or found.kind == "proc":
        return True
    return found.kind not in _IN_MEMORY and not _is_mounted_outside(found.device, pid, proc)


def _mount(descriptor: int, pid: int, proc: Path) -> _Mount | None:
    number = mount_of(descriptor)
    with (proc / str(pid) / "mountinfo").open("rb") as file:
        text = file.read(_MOUNTS_BYTES + 1)
    if len(text) > _MOUNTS_BYTES:
        raise OSError(errno.EFBIG, "the container has too many mounts")
    return next((one for one in _mounts(text) if one.number == number), None)


def _is_mounted_outside(device: bytes, pid: int, proc: Path) -> bool:
    """Whether we, the host's first process or the parent of the container's first process have it
    mounted. We may run in a container; and a rootless engine keeps its containers' roots among
    mounts of its own, where that parent, which the engine starts, has to find them."""
    stat = start_of(proc / str(pid) / "stat", _SHORT_BYTES) or b""
    parent = stat.rpartition(b")")[2].split()[1:2]
    others = [proc / "1", *(proc / one.decode("ascii") for one in parent)]
    for process in (Path("/proc/self"), *others):
        with suppress(OSError):
            text = (process / "mountinfo").read_bytes()
            if any(one.device == device for one in _mounts(text)):
                return True
    return False


def _mounts(text: bytes) -> Iterator[_Mount]:
    # Its lines end with \n alone: a path may hold any other character that ends a line.
    for line in text.split(b"\n"):
        before, _, after = line.partition(b" - ")
        with suppress(IndexError):
            fields = before.split(b" ", 3)
            yield _Mount(fields[0], fields[2], after.split(b" ", 1)[0].decode("ascii", "replace"))

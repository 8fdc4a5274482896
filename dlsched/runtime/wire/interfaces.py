"""On which of the host's interfaces a container's connections are visible."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.progress.listening import ListeningSocket, shares_network
from dlsched.runtime.progress.mounts import kind_of, may_hang

NET = Path("/sys/class/net")
LOOPBACK = "lo"
INTERFACES_MAX = 8
"""Interfaces of the host on which one container in its network is watched."""

_INSIDE = ("sys", "devices", "virtual", "net")
"""Where sysfs has virtual interfaces, without a link on the way."""


class NotVisible(Exception):
    """Why a container's connections are not visible, in one line."""


def interfaces_of(
    pid: int, sockets: Iterable[ListeningSocket], proc: Path = PROC, net: Path = NET
) -> tuple[str, ...]:
    """The host's interfaces that carry what comes to these sockets. Raises NotVisible."""
    if shares_network(pid, proc):
        return _of_the_host(tuple(sockets), net)
    return (_outside_of(pid, proc),)


def _of_the_host(sockets: tuple[ListeningSocket, ...], net: Path) -> tuple[str, ...]:
    """Loopback, which also carries what the host sends to its own addresses; and where a socket
    takes connections from outside, each interface that is part of no other one."""
    found = [LOOPBACK]
    if not all(one.address.is_loopback for one in sockets):
        with suppress(OSError):
            for one in sorted(net.iterdir()):
                part = (one / "brport").exists() or (one / "master").exists()
                if one.name != LOOPBACK and not part and _is_up(one):
                    found.append(one.name)
    return tuple(found[:INTERFACES_MAX])


def _is_up(interface: Path) -> bool:
    try:
        return bool(int((interface / "flags").read_text(encoding="ascii"), 16) & 1)
    except (OSError, ValueError):
        return False


def _outside_of(pid: int, proc: Path) -> str:
    """The host's end of a container's pair of interfaces. Raises NotVisible."""
    indices = set()
    try:
        for name in _names(pid, proc):
            indices.add(_peer(pid, name, proc))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "unknown format"
        raise NotVisible(f"the container's network cannot be inspected: {why}") from None
    indices.discard(0)
    names = []
    for index in indices:
        with suppress(OSError):
            names.append(socket.if_indextoname(index))
    if not indices:
        raise NotVisible("the container has no network but its own loopback")
    if len(names) != 1:
        raise NotVisible(
            "the container's network is not a bridge with one interface (macvlan, ipvlan, overlay "
            "and none "
            "are not visible)"
        )
    return names[0]


def _names(pid: int, proc: Path) -> list[str]:
    """Its interfaces but loopback."""
    lines = (proc / str(pid) / "net" / "dev").read_text(encoding="ascii", errors="replace")
    names = [line.partition(":")[0].strip() for line in lines.splitlines()[2:]]
    return [name for name in names if name != LOOPBACK and "/" not in name][:INTERFACES_MAX]


def _peer(pid: int, name: str, proc: Path) -> int:
    """The index of the other end of one of its interfaces; 0: it has none. Raises OSError, also
    where a part of /sys in the container is not the kernel's: a container may mount anything there,
    or change its root, to a file system of its own that never answers. So nothing is asked of a
    file or folder before it is known to be on sysfs, or the root on one that answers."""
    found = os.open(proc / str(pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if may_hang(found, pid, proc):
            raise PermissionError(1, "the container's root may never answer")
        for part in (*_INSIDE, name, "iflink"):
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=found)
            os.close(found)
            found = inner
            if kind_of(found, pid, proc) != "sysfs":
                raise PermissionError(1, "/sys in the container is not sysfs")
        descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(found)
    try:
        return int(os.read(descriptor, 32))
    except ValueError:
        return 0
    finally:
        os.close(descriptor)

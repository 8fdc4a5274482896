"""Whose socket it is that listens: of a container in the host's network, 127.0.0.1 is asked only
where the listening socket belongs to a process of its control group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC, group_folders
from dlsched.runtime.progress.http_page import Unanswered

LOOPBACK = "127.0.0.1"
PROCESSES_MAX = 4096
"""Processes of one container that are examined."""
DESCRIPTORS_MAX = 65_536
"""Descriptors of all of them."""
_TABLE_BYTES_MAX = 32 << 20

_LISTENING = "0A"
_ADDRESSES = frozenset({
    "00000000", "0100007F", "0" * 32, "0000000000000000FFFF00000100007F",
    "0000000000000000FFFF000000000000",
})  # fmt: skip
"""Local addresses that answer on 127.0.0.1, as the kernel writes them on little-endian machines."""
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")

NO_ADDRESS = (
    "the container has no address of its own (network none or another container's), so its "
    "metrics cannot be read"
)


def loopback_of(pid: int, container: str, port: int, proc: Path = PROC) -> str:
    """127.0.0.1, where this container of the host's network listens on that port. Raises
    Unanswered."""
    if not _shares_network(pid, proc):
        raise Unanswered(NO_ADDRESS)
    listening = frozenset(_listening(pid, port, proc))
    if not listening:
        raise Unanswered("nothing listens on 127.0.0.1 there")
    if not listening <= _sockets(pid, container, proc):
        raise Unanswered("the socket that listens there is not the container's")
    return LOOPBACK


def _shares_network(pid: int, proc: Path) -> bool:
    """Whether that process is in this process' network, so that both have one loopback."""
    try:
        own = (proc / "self" / "ns" / "net").readlink()
        return own == (proc / str(pid) / "ns" / "net").readlink()
    except OSError:
        return False


def _listening(pid: int, port: int, proc: Path) -> Iterator[str]:
    """The inodes of the sockets that listen on that port of 127.0.0.1."""
    for table in ("tcp", "tcp6"):
        try:
            with (proc / str(pid) / "net" / table).open(encoding="ascii", errors="replace") as file:
                text = file.read(_TABLE_BYTES_MAX)
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING:
                address, _, number = fields[1].partition(":")
                if address in _ADDRESSES and number == f"{port:04X}":
                    yield fields[9]


def _sockets(pid: int, container: str, proc: Path) -> frozenset[str]:
    """The inodes of all sockets of the container's processes."""
    found: set[str] = set()
    descriptors = islice(_descriptors(pid, container, proc), DESCRIPTORS_MAX)
    for descriptor in descriptors:
        with suppress(OSError):
            if match := _SOCKET.fullmatch(str(descriptor.readlink())):
                found.add(match[1])
    return frozenset(found)


def _descriptors(pid: int, container: str, proc: Path) -> Iterator[Path]:
    for process in islice(_processes(pid, container, proc), PROCESSES_MAX):
        with suppress(OSError):
            yield from (proc / process / "fd").iterdir()


def _processes(pid: int, container: str, proc: Path) -> Iterator[str]:
    """The processes of the container's group and of groups in it."""
    try:
        folders = group_folders(pid, proc, container=container)
    except (OSError, ValueError):
        return
    folder = folders.get("") or folders.get("cpu")
    if folder is None or container not in str(folder):
        return
    for file in (folder / "cgroup.procs", *folder.rglob("*/cgroup.procs")):
        with suppress(OSError):
            yield from file.read_text(encoding="ascii").split()

"""Whose socket it is that listens: a port is a container's only where the listening socket belongs
to a process of its control group, so that containers which share a network are distinguished."""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from dlsched.runtime.cgroup.read import PROC, group_folders
from dlsched.runtime.progress.http_page import Unanswered

LOOPBACK = "127.0.0.1"
PROCESSES_MAX = 4096
"""Processes of one container that are examined."""
DESCRIPTORS_MAX = 65_536
"""Descriptors of all of them."""
TABLES = ("tcp", "tcp6")
"""Of IPv4 and of IPv6."""
_TABLE_BYTES_MAX = 32 << 20

_CONNECTED, _LISTENING = "01", "0A"
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")


class ListeningSocket(NamedTuple):
    """A TCP socket that listens."""

    address: IPv4Address | IPv6Address
    """Its own; an IPv4 address mapped into IPv6 is shown as what it is."""
    port: int
    inode: str

    def answers_on(self, address: str) -> bool:
        """Whether a connection to that address reaches it. A socket bound to `::` takes IPv4 as
        well, unless its program forbids it, which is not visible."""
        return self.address.is_unspecified or self.address == ip_address(address)


NO_ADDRESS = "the container has no address that can be asked, so its metrics cannot be read"


def loopback_of(pid: int, container: str, port: int, proc: Path = PROC) -> str:
    """127.0.0.1, where this container of the host's network listens on that port. Raises
    Unanswered."""
    if not shares_network(pid, proc):
        raise Unanswered(NO_ADDRESS)
    require_own(pid, container, LOOPBACK, port, proc)
    return LOOPBACK


def require_own(pid: int, container: str, address: str, port: int, proc: Path = PROC) -> None:
    """Raise Unanswered unless this container alone listens there, of those in its network."""
    listen = [one for one in listening_in(pid, proc) if one.port == port]
    there = {one.inode for one in listen if one.answers_on(address)}
    if not there:
        raise Unanswered(f"nothing in the container's network listens on {address}, port {port}")
    if not there <= sockets_of(pid, container, proc):
        raise Unanswered(f"a program outside the container listens on {address}, port {port}")


def shows_sockets(pid: int, container: str, proc: Path = PROC) -> bool:
    """Whether the kernel says here on what that container listens: the process is on this host, and
    its descriptors can be read."""
    if next(_processes(pid, container, proc), None) is None:
        return False
    try:
        return next((proc / str(pid) / "fd").iterdir(), None) is not None
    except OSError:
        return False


def listening_of(
    pid: int,
    container: str,
    proc: Path = PROC,
    there: tuple[ListeningSocket, ...] | None = None,
) -> tuple[ListeningSocket, ...]:
    """The listening TCP sockets of this container's own processes, by port. `there`: those of its
    network, where they are known."""
    there = tuple(listening_in(pid, proc)) if there is None else there
    own = sockets_of(pid, container, proc) if there else frozenset()
    found = (one for one in there if one.inode in own)
    return tuple(sorted(found, key=lambda one: (one.port, str(one.address))))


def shares_network(pid: int, proc: Path, other: int | Literal["self"] = "self") -> bool:
    """Whether that process is in the other's network (this process'), so that both have one
    loopback."""
    try:
        own = (proc / str(other) / "ns" / "net").readlink()
        return own == (proc / str(pid) / "ns" / "net").readlink()
    except OSError:
        return False


def connected_in(
    pid: int | str, to: Container[int], proc: Path = PROC
) -> Iterator[tuple[int, str]]:
    """The sockets in that process' network that are connected to one of these ports: the own port
    of each, and its inode."""
    for fields in _table(pid, proc, _CONNECTED):
        with suppress(ValueError):
            if int(fields[2].rpartition(":")[2], 16) in to:
                yield int(fields[1].rpartition(":")[2], 16), fields[9]


def listening_in(
    pid: int, proc: Path = PROC, tables: Iterable[str] = TABLES
) -> Iterator[ListeningSocket]:
    """The TCP sockets that listen in that process' network, of any program. `tables`: those to
    read, where others are known to be empty."""
    for fields in _table(pid, proc, _LISTENING, tables):
        address, _, number = fields[1].partition(":")
        with suppress(ValueError):
            yield ListeningSocket(_address(address), int(number, 16), fields[9])


def _table(
    pid: int | str, proc: Path, state: str, tables: Iterable[str] = TABLES
) -> Iterator[list[str]]:
    """The lines of the kernel's tables of TCP sockets with that state."""
    for table in tables:
        try:
            with (proc / str(pid) / "net" / table).open(encoding="ascii", errors="replace") as file:
                text = file.read(_TABLE_BYTES_MAX)
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == state:
                yield fields


def _address(written: str) -> IPv4Address | IPv6Address:
    """An address as the kernel writes it: 32 bits at a time, in the machine's byte order."""
    parts = [bytes.fromhex(written[at : at + 8]) for at in range(0, len(written), 8)]
    if sys.byteorder == "little":
        parts = [part[::-1] for part in parts]
    address = ip_address(b"".join(parts))
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def sockets_of(pid: int, container: str, proc: Path = PROC) -> frozenset[str]:
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
    # With both versions mounted, it may be in a group of its own in the older one alone.
    named = (folders[one] for one in ("", "cpu") if container in str(folders.get(one)))
    folder = next(named, None)
    if folder is None:
        return
    for file in (folder / "cgroup.procs", *folder.rglob("*/cgroup.procs")):
        with suppress(OSError):
            yield from file.read_text(encoding="ascii").split()

"""What listens in the networks of containers: asked often, looked up where it may have changed.

The kernel's tables of TCP sockets take milliseconds to read, however few sockets a network has,
since one hash table serves all networks. How many sockets and which interfaces a network has is
known within microseconds. So the tables are read where these changed, and not where they are empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.progress.listening import TABLES, ListeningSocket, listening_in

CHECK_S = 15.0
"""Of a network where something listens it is checked so often whether it has changed."""
BUSY_S = 30.0
"""Its table is read at most so often: connections that come and go change it all the time."""
SAME_S = 900.0
"""As many sockets may be other ones: so often the table is read in any case."""
SHARED_S = 30.0
"""The same of the host's own network, where a port may change hands between containers."""
_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Network:
    """What listened in a network when that was last different."""

    name: str
    sockets: tuple[ListeningSocket, ...]
    interfaces: bytes


@dataclass(slots=True)
class _Known:
    network: Network
    uses: tuple[bytes | None, ...]
    """How many sockets of each table it used when they were read; None: unknown."""
    read_s: float
    checked_s: float = field(default=0.0)


class Networks:
    """The networks of all watched containers."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[str, _Known] = {}
        self._hosts = ""
        """The name of the host's own network."""
        with suppress(OSError):
            self._hosts = os.readlink(proc / "self" / "ns" / "net")  # noqa: PTH115

    def of(self, pid: int, now_s: float, *, soon: bool = True) -> Network:
        """The network of that process: the same object until it changes. `soon`: find a new socket
        in the same call, and not within `BUSY_S`. Raises OSError."""
        folder = f"{self._proc}/{pid}"
        name = os.readlink(f"{folder}/ns/net")  # noqa: PTH115 - half the time of Path
        known = self._known.get(name)
        if known and (known.checked_s == now_s or (now_s - known.checked_s < CHECK_S and not soon)):
            return known.network
        uses, interfaces = _uses(folder), _interfaces(folder)
        if known is None:
            known = _Known(Network("", (), b""), (), float("-inf"))
            self._known[name] = known
        known.checked_s = now_s
        waits_s = 0.0 if soon else BUSY_S
        same_s = SHARED_S if name == self._hosts else SAME_S
        if now_s - known.read_s >= (same_s if uses == known.uses else waits_s):
            known.uses, known.read_s = uses, now_s
            sockets = tuple(listening_in(pid, self._proc, _tables(uses)))
        else:
            sockets = known.network.sockets
        found = Network(name, sockets, interfaces)
        if found != known.network:
            known.network = found
        return known.network

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other networks."""
        self._known = {name: self._known[name] for name in set(names) if name in self._known}


def _uses(folder: str) -> tuple[bytes | None, ...]:
    """How many sockets of each table its network uses, as the kernel writes it."""
    return _used(folder, "sockstat", b"TCP: inuse "), _used(folder, "sockstat6", b"TCP6: inuse ")


def _used(folder: str, name: str, before: bytes) -> bytes | None:
    with suppress(OSError, IndexError):
        return _read(f"{folder}/net/{name}").partition(before)[2].split(None, 1)[0]
    return None


def _tables(uses: Iterable[bytes | None]) -> tuple[str, ...]:
    """Those that are not empty."""
    return tuple(table for table, used in zip(TABLES, uses, strict=True) if used != b"0")


def _interfaces(folder: str) -> bytes:
    """The names of its interfaces."""
    with suppress(OSError):
        lines = _read(f"{folder}/net/dev").splitlines()
        return b" ".join(line.partition(b":")[0].strip() for line in lines[2:])
    return b""


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _BYTES_MAX)
    finally:
        os.close(descriptor)

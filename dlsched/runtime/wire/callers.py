"""Which container is behind a client's address, or behind its port on the host itself."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.progress.listening import connected_in, shares_network, sockets_of

RESOLVE_S = 10.0
"""Ports are looked up so often at most: all descriptors of the containers are read for it."""
ON_THE_HOST = "a process of this host"


@dataclass(frozen=True, slots=True)
class Caller:
    """A container that may be the client of another one."""

    name: str
    container: str
    pid: int
    address: str | None
    """Its own; None: it has the host's network, or none."""


class Callers:
    """Names clients; used by one thread, but for `know`."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: tuple[Caller, ...] = ()
        self._by_address: dict[str, str] = {}
        self._by_port: dict[str, str] = {}
        self._resolved_s = float("-inf")

    def know(self, containers: Iterable[Caller]) -> None:
        """Take these for all containers that can be named."""
        known = tuple(containers)
        self._by_address = {one.address: one.name for one in known if one.address is not None}
        self._known = known

    def resolve(self, clients: Iterable[str], ports: Container[int], now_s: float) -> None:
        """Find the containers behind these clients, which are connected to these ports."""
        fresh = any(one.startswith(":") and one not in self._by_port for one in clients)
        if not fresh or now_s - self._resolved_s < RESOLVE_S:
            return
        self._resolved_s = now_s
        owners = {
            inode: one.name
            for one in self._known
            if one.address is None and shares_network(one.pid, self._proc)
            for inode in sockets_of(one.pid, one.container, self._proc)
        }
        connected = connected_in("self", ports, self._proc) if owners else ()
        self._by_port = {f":{port}": owners[inode] for port, inode in connected if inode in owners}

    def name(self, client: str) -> str:
        """The container's name, or else the client's address."""
        if client.startswith(":"):
            return self._by_port.get(client, ON_THE_HOST)
        return self._by_address.get(client, client)

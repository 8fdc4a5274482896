"""Packets of the kernel's rings as requests and answers of the watched ports. Pure.

`Meter.block` reads one block of a TPACKET_V3 ring; `Meter.report` says what was counted since the
last report. Every byte comes from the network: lengths are checked, tables are bounded, and what
does not fit is counted.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping
from typing import Any

from dlsched.runtime.wire.connection import Connection
from dlsched.runtime.wire.counts import Ages, PortCounts

CONNECTIONS_MAX = 20_000
"""Connections that are followed at a time, some 600 bytes each; the oldest one gives way."""
PURGE_S = 10.0
IDLE_S = 120.0
"""A connection without an open request is forgotten after this time; if it goes on, it is known
again by its next request."""
OPEN_S = 3600.0
"""One with an open request is forgotten when nothing was heard for so long: its end was missed."""
RETIRE_S = 0.2
"""The kernel hands over a packet at the latest after this time."""

_LOOPBACK_6 = bytes(15) + b"\x01"
_MASK = 0xFFFFFFFF
_HALF = 0x80000000
_FIN, _SYN, _RST = 1, 2, 4

_BLOCK = struct.Struct("=IIIIIIQ")
"""version, offset to private, status, packets, offset to the first one, length, sequence."""
_PACKET = struct.Struct("=IIIIIIHH")
"""next, seconds, nanoseconds, captured, length, status, offset of the link, of the network."""
_TCP = struct.Struct(">HHIIH")
"""source port, destination port, sequence number, acknowledgement, data offset and flags."""

Key = tuple[bytes, bytes, int, int]


class Meter:
    """What the watched ports answer; for one thread."""

    def __init__(self) -> None:
        self._ports: dict[int, dict[int, int]] = {}
        """By ring, then port: the meter's number of the container's port."""
        self._counts: dict[int, PortCounts] = {}
        self._skips: dict[int, re.Pattern[bytes] | None] = {}
        self._connections: dict[Key, Connection] = {}
        self._purged_ns = 0
        self.packets = 0
        self.bad = 0
        """Packets that contradict themselves."""
        self.evicted = 0
        """Connections given up since the table was full."""

    def watch(self, ports: Mapping[int, Mapping[int, int]], skips: Mapping[int, str]) -> None:
        """Watch these ports: by ring and port the number that reports carry. `skips`: by number,
        an expression for the paths of requests that do not count."""
        self._ports = {ring: dict(one) for ring, one in ports.items()}
        numbers = {number for one in self._ports.values() for number in one.values()}
        self._counts = {one: self._counts.get(one) or PortCounts() for one in numbers}
        self._skips = {
            one: re.compile(skips[one].encode()) if one in skips else None for one in numbers
        }
        kept = {id(one) for one in self._counts.values()}
        for key in [key for key, one in self._connections.items() if id(one.port) not in kept]:
            del self._connections[key]

    def block(self, ring: int, data: bytes) -> None:
        """Read one block of a ring."""
        ports = self._ports.get(ring)
        if not ports or len(data) < _BLOCK.size:
            return
        count, at = _BLOCK.unpack_from(data)[3:5]
        end = len(data) - _PACKET.size
        for _ in range(count):
            if at > end:
                self.bad += 1
                return
            following, sec, nsec, captured, length, _, _, net = _PACKET.unpack_from(data, at)
            self.packets += 1
            try:
                begin = at + net
                self._packet(
                    ring,
                    ports,
                    sec * 1_000_000_000 + nsec,
                    data,
                    begin,
                    min(begin + captured, len(data)),
                    length,
                )
            except (struct.error, IndexError):
                self.bad += 1
            if not following:
                return
            at += following

    def _packet(
        self,
        ring: int,
        ports: Mapping[int, int],
        ns: int,
        data: bytes,
        ip: int,
        end: int,
        length: int,
    ) -> None:
        """One packet: its network header begins at `ip`, what was captured of it ends at `end`."""
        version = data[ip] >> 4
        if version == 4:
            tcp = ip + ((data[ip] & 15) << 2)
            total = data[ip + 2] << 8 | data[ip + 3] or length
            source, target = data[ip + 12 : ip + 16], data[ip + 16 : ip + 20]
        elif version == 6:
            tcp = ip + 40
            total = (data[ip + 4] << 8 | data[ip + 5]) + 40
            if total == 40:
                total = length
            source, target = data[ip + 8 : ip + 24], data[ip + 24 : ip + 40]
        else:
            self.bad += 1
            return
        sport, dport, seq, _, bits = _TCP.unpack_from(data, tcp)
        begin = tcp + ((bits >> 12) << 2)
        size = total - (begin - ip)
        if size < 0 or begin < tcp + 20:
            self.bad += 1
            return
        if dport in ports:
            to_server = True
            key = (source, target, sport, dport)
        elif sport in ports:
            to_server = False
            key = (target, source, dport, sport)
        else:
            return
        connection = self._connections.get(key)
        if bits & _SYN and to_server and (connection is None or not connection.syn_ns):
            connection = None  # the client's port is used again
        if connection is None:
            if not size and not (to_server and bits & _SYN):
                return  # the end of what is not followed
            connection = self._begun(key, ports[key[3]], ring)
        elif connection.ring != ring:
            return  # it is seen on two interfaces
        connection.seen_ns = ns
        said = data[begin : min(end, begin + size)]
        if to_server:
            self._of_client(connection, ns, seq, size, said, bits)
        else:
            self._of_server(connection, ns, seq, size, said, bits)
        if connection.closed:
            del self._connections[key]

    def _begun(self, key: Key, number: int, ring: int) -> Connection:
        connections = self._connections
        if key in connections:
            del connections[key]
        elif len(connections) >= CONNECTIONS_MAX:
            del connections[next(iter(connections))]
            self.evicted += 1
        caller = _caller(key)
        begun = Connection(self._counts[number], caller, self._skips[number], ring)
        connections[key] = begun
        return begun

    @staticmethod
    def _of_client(one: Connection, ns: int, seq: int, size: int, said: bytes, bits: int) -> None:
        if bits & _SYN:
            one.asks_to_connect(ns)
            seq = (seq + 1) & _MASK
            one.client_next = seq
        if size:
            expected = one.client_next
            following = (seq + size) & _MASK
            if expected is not None and expected != seq:
                fresh = (following - expected) & _MASK
                if not fresh or fresh >= _HALF:
                    size = 0  # sent again
                elif fresh < size:
                    said, size = said[size - fresh :], fresh
                else:
                    one.client_missed()
            if size:
                one.client_next = following
                one.client_says(ns, size, said)
        if bits & _RST:
            one.client_resets()
        elif bits & _FIN:
            one.client_ends()

    @staticmethod
    def _of_server(one: Connection, ns: int, seq: int, size: int, said: bytes, bits: int) -> None:
        if bits & _SYN:
            one.connects(ns)
            seq = (seq + 1) & _MASK
            one.server_next = seq
        if size:
            expected = one.server_next
            following = (seq + size) & _MASK
            if expected is not None and expected != seq:
                fresh = (following - expected) & _MASK
                if not fresh or fresh >= _HALF:
                    size = 0
                elif fresh < size:
                    said, size, seq = said[size - fresh :], fresh, expected
                else:
                    one.server_missed()
            if size:
                one.server_next = following
                one.server_says(ns, seq, size, said)
        if bits & _RST:
            one.server_resets()
        elif bits & _FIN:
            one.server_ends(ns)

    # ------------------------------------------------------------------ reports

    def report(self, now_ns: int) -> dict[str, Any]:
        """What was counted since the last report, by number, with what is open at `now_ns`; a port
        on which nothing happened is left out."""
        now_ns -= int(RETIRE_S * 1e9)
        waiting: dict[int, list[Ages]] = {}
        for connection in self._connections.values():
            if connection.open or connection.syn_again:
                waiting.setdefault(id(connection.port), []).append(connection.ages_ns(now_ns))
        whole = {
            "ports": {
                str(number): counts.take(waiting.get(id(counts), ()))
                for number, counts in self._counts.items()
                if counts.has_news or id(counts) in waiting
            },
            "followed": len(self._connections),
            "packets": self.packets,
            "bad": self.bad,
            "evicted": self.evicted,
        }
        self.packets = self.bad = self.evicted = 0
        if now_ns - self._purged_ns > PURGE_S * 1e9:
            self._purge(now_ns)
        return whole

    def _purge(self, now_ns: int) -> None:
        """Forget connections that are silent."""
        self._purged_ns = now_ns
        idle_ns, open_ns = now_ns - int(IDLE_S * 1e9), now_ns - int(OPEN_S * 1e9)
        for key, one in list(self._connections.items()):
            if one.seen_ns < (open_ns if one.open else idle_ns):
                one.port.lost += one.open
                del self._connections[key]


def _caller(key: Key) -> str:
    """The client's address; on the host itself its port, by which its process can be found."""
    if len(key[0]) == 4:
        return f":{key[2]}" if key[0][0] == 127 else socket.inet_ntop(socket.AF_INET, key[0])
    if key[0] == _LOOPBACK_6:
        return f":{key[2]}"
    return socket.inet_ntop(socket.AF_INET6, key[0])

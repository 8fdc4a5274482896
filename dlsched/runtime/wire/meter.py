"""Packets of the kernel's rings as requests and answers of the watched ports. Pure.

`Meter.block` reads one block of a TPACKET_V3 ring; `Meter.report` says what was counted since the
last report. Every byte comes from the network: lengths are checked, tables are bounded, and what
does not fit is counted.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator, Mapping
from heapq import nsmallest
from typing import Any

from dlsched.runtime.wire.connection import NEW, UNMEASURED, Connection
from dlsched.runtime.wire.counts import Ages, PortCounts

CONNECTIONS_MAX = 20_000
"""Connections that are followed at a time, some 1.3 kB each; those that were silent longest are
given up."""
EVICTED_AT_A_TIME = CONNECTIONS_MAX // 20
"""To find them takes some microseconds for each."""
PURGE_S = 10.0
UNUSED_S = 120.0
"""A connection on which nothing was asked, or that one side has ended, is forgotten after this
time."""
SILENT_S = 3600.0
"""Any other is forgotten when nothing was heard for so long: its end was missed. What goes on after
that is only measured from its second request on."""
RETIRE_S = 0.2
"""The kernel hands over a packet at the latest after this time."""

_LOOPBACK_6 = bytes(15) + b"\x01"
_MASK = 0xFFFFFFFF
_HALF = 0x80000000
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_ENDS = _FIN | _SYN | _RST
_CLIENT, _SERVER = 0, 1

_BLOCK = struct.Struct("=IIIIIIQ")
"""version, offset to private, status, packets, offset to the first one, length, sequence."""
_PACKET = struct.Struct("=IIIII6xH")
"""next, seconds, nanoseconds, captured, length, offset of the network."""
_TCP = struct.Struct(">IIH")
"""sequence number, acknowledgement, data offset and flags; behind the ports."""
_IPV4 = struct.Struct(">2xH8x12sIIH").unpack_from
_IPV6 = struct.Struct(">4xH2x36sIIH").unpack_from
"""Of a network header without options: length, addresses and ports, and `_TCP`."""


class Meter:
    """What the watched ports answer; for one thread."""

    def __init__(self) -> None:
        self._ports: dict[int, dict[int, int]] = {}
        """By ring, then port: the meter's number of the container's port."""
        self._counts: dict[int, PortCounts] = {}
        self._table: dict[bytes, tuple[Connection, int]] = {}
        """By addresses and ports as they stand in a packet: its connection, and who speaks."""
        self._over: tuple[dict[bytes, int], dict[bytes, int]] = {}, {}
        """The rings of connections that ended after the last report, and after the one before: the
        same packets may come by another ring, and some of the same ring late."""
        self._purged_ns = 0
        self.packets = 0
        self.bad = 0
        """Packets that contradict themselves."""

    def watch(self, ports: Mapping[int, Mapping[int, int]], skips: Mapping[int, str]) -> None:
        """Watch these ports: by ring and port the number that reports carry. `skips`: by number,
        an expression for the paths of requests that do not count."""
        self._ports = {ring: dict(one) for ring, one in ports.items()}
        numbers = {number for one in self._ports.values() for number in one.values()}
        self._counts = {one: self._counts.get(one) or PortCounts() for one in numbers}
        for number, counts in self._counts.items():
            skip = skips.get(number)
            counts.skips = None if skip is None else re.compile(skip.encode())
        kept = {id(one) for one in self._counts.values()}
        self._table = {
            key: held
            for key, held in self._table.items()
            if id(held[0].port) in kept and held[0].ring in self._ports
        }

    def block(self, ring: int, data: bytes) -> None:
        """Read one block of a ring."""
        if not self._ports.get(ring) or len(data) < _BLOCK.size:
            return
        count, at = _BLOCK.unpack_from(data)[3:5]
        end = len(data) - _PACKET.size
        size, unpacked, packet = len(data), _PACKET.unpack_from, self._packet
        read = 0
        for _ in range(count):
            if at > end:
                self.bad += 1
                break
            following, sec, nsec, captured, length, net = unpacked(data, at)
            read += 1
            ns = sec * 1_000_000_000 + nsec
            begin = at + net
            last = begin + captured
            try:
                packet(ring, ns, data, begin, last if last < size else size, length)
            except IndexError:
                self.bad += 1
            if not following:
                break
            at += following
        self.packets += read

    def _packet(self, ring: int, ns: int, data: bytes, ip: int, end: int, length: int) -> None:
        """One packet: its network header begins at `ip`, what was captured of it ends at `end`."""
        first = data[ip]
        if first == 0x45:
            tcp = ip + 20
            if tcp + 20 > end:
                self.bad += 1
                return
            total, key, seq, ack, bits = _IPV4(data, ip)
            total = total or length
        elif first >> 4 == 6:
            tcp = ip + 40
            if tcp + 20 > end:
                self.bad += 1
                return
            total, key, seq, ack, bits = _IPV6(data, ip)
            total = total + 40 if total else length
        else:
            tcp = ip + ((first & 15) << 2)
            if first >> 4 != 4 or tcp < ip + 20 or tcp + 20 > end:
                self.bad += 1
                return
            total = data[ip + 2] << 8 | data[ip + 3] or length
            key = data[ip + 12 : ip + 20] + data[tcp : tcp + 4]
            seq, ack, bits = _TCP.unpack_from(data, tcp + 4)
        begin = tcp + (bits >> 12 << 2)
        size = total - begin + ip
        if size < 0 or begin < tcp + 20 or total > length:
            self.bad += 1
            return
        held = self._table.get(key)
        if held is None or bits & _SYN:
            held = self._of_unknown(ring, key, held, seq, size, bits)
            if held is None:
                return
        one, side = held
        if one.ring != ring:
            return  # it is found on two interfaces
        one.heard_ns = ns
        if one.kind != UNMEASURED:
            last = begin + size
            said = data[begin : last if last < end else end]
            nexts = one.nexts
            if size and not bits & _ENDS and seq == nexts[side] and ack == nexts[1 - side]:
                nexts[side] = (seq + size) & _MASK  # nearly all come in order
                if side == _CLIENT:
                    one.client_says(ns, size, said)
                else:
                    one.server_says(ns, size, said)
                return
            self._says(one, side, ns, seq, ack, bits, size, said)
        if bits & (_FIN | _RST):
            self._ends(one, side, ns, bits)
            if one.closed:
                self._forget(key if side == _CLIENT else _turned(key))

    @staticmethod
    def _ends(one: Connection, side: int, ns: int, bits: int) -> None:
        """The client or the server ends its direction, or both abruptly."""
        if bits & _RST:
            one.resets(side == _SERVER)
            return
        one.ended |= 1 << side
        if side == _CLIENT:
            one.client_ends()
        else:
            one.server_ends(ns)
        if one.ended == 3:
            one.close()

    @staticmethod
    def _says(
        one: Connection, side: int, ns: int, seq: int, ack: int, bits: int, size: int, said: bytes
    ) -> None:
        """A packet of the client or the server, by its sequence numbers: what was sent again is
        dropped, and what was missed is noticed."""
        nexts = one.nexts
        if bits & _SYN:
            seq = (seq + 1) & _MASK
            if side == _CLIENT:
                one.asks_to_connect(ns)
            else:
                one.connects(ns)
            if nexts[side] is None:
                nexts[side] = seq
        other = nexts[1 - side]
        answered = False
        if ack != other and bits & _ACK:
            if other is None:
                other = nexts[1 - side] = ack
            missed = (ack - other) & _MASK
            if 0 < missed < _HALF:
                nexts[1 - side] = ack
                # The end of a direction counts as one byte.
                if not (missed == 1 and one.ended >> (1 - side) & 1):
                    answered = True
                    _misses(one, 1 - side, missed, more=False)
        expected = nexts[side]
        if seq != expected and expected is not None and (size or bits & (_FIN | _RST)):
            missed = (seq - expected) & _MASK
            if missed < _HALF:
                _misses(one, side, missed, more=size > 0, answered=answered)
                nexts[side] = seq  # what comes late of it is known to be missed
            else:  # some or all of it is sent again
                size -= _MASK + 1 - missed
                said = said[_MASK + 1 - missed :]
                seq = expected
        if size > 0:
            nexts[side] = (seq + size) & _MASK
            if side == _CLIENT:
                one.client_says(ns, size, said)
            else:
                one.server_says(ns, size, said)

    # ------------------------------------------------------------------ the table

    def _of_unknown(
        self,
        ring: int,
        key: bytes,
        held: tuple[Connection, int] | None,
        seq: int,
        size: int,
        bits: int,
    ) -> tuple[Connection, int] | None:
        """The connection of a packet that begins one, or belongs to none that is known."""
        asks = bits & (_SYN | _ACK) == _SYN
        if held is not None:
            one, side = held
            if not asks or side == _SERVER or one.ring != ring or one.isn == seq:
                return held
            one.close()  # the client's port is used again
            self._forget(key)
        if not size and not asks:
            return None  # the end of what is not followed
        ports = self._ports[ring]
        side = _CLIENT
        number = ports.get(key[-2] << 8 | key[-1])
        if number is None:
            side = _SERVER
            number = ports.get(key[-4] << 8 | key[-3])
            if number is None or bits & _SYN:
                return None
        of_client = key if side == _CLIENT else _turned(key)
        for over in self._over:
            if of_client in over and not (asks and over[of_client] == ring):
                return None
        if len(self._table) >= 2 * CONNECTIONS_MAX:
            self._evict()
        one = Connection(self._counts[number], _caller(of_client), ring)
        if asks:
            one.isn = seq
        self._table[of_client] = one, _CLIENT
        self._table[_turned(of_client)] = one, _SERVER
        return one, side

    def _forget(self, key: bytes) -> None:
        """Take out the connection with this key of its client."""
        one, _ = self._table.pop(key)
        del self._table[_turned(key)]
        if len(self._over[0]) < CONNECTIONS_MAX:
            self._over[0][key] = one.ring

    def _evict(self) -> None:
        silent = nsmallest(
            EVICTED_AT_A_TIME, self._connections(), key=lambda each: each[1].heard_ns
        )
        for key, one in silent:
            one.close()
            self._forget(key)

    def _connections(self) -> Iterator[tuple[bytes, Connection]]:
        for key, (one, side) in self._table.items():
            if side == _CLIENT:
                yield key, one

    # ------------------------------------------------------------------ reports

    def report(self, now_ns: int) -> dict[str, Any]:
        """What was counted since the last report, by number, with what is open at `now_ns`; a port
        on which nothing happened is left out."""
        now_ns -= int(RETIRE_S * 1e9)
        waiting: dict[int, list[Ages]] = {}
        left = []
        for key, one in self._connections():
            if one.open or one.syn_again:
                if one.gave_up(now_ns):
                    left.append((key, one))
                else:
                    waiting.setdefault(id(one.port), []).append(one.ages_ns(now_ns))
        for key, one in left:
            one.not_connected()
            self._forget(key)
        if abs(now_ns - self._purged_ns) > PURGE_S * 1e9:
            self._purge(now_ns)
        whole = {
            "ports": {
                str(number): counts.take(waiting.get(id(counts), ()))
                for number, counts in self._counts.items()
                if counts.has_news or id(counts) in waiting
            },
            "followed": len(self._table) // 2,
            "packets": self.packets,
            "bad": self.bad,
        }
        self.packets = self.bad = 0
        self._over = {}, self._over[0]
        return whole

    def _purge(self, now_ns: int) -> None:
        """Forget connections that are silent."""
        self._purged_ns = now_ns
        unused_ns, silent_ns = now_ns - int(UNUSED_S * 1e9), now_ns - int(SILENT_S * 1e9)
        for key, one in list(self._connections()):
            unused = (one.kind == NEW or one.ended) and not one.open
            if one.heard_ns < (unused_ns if unused else silent_ns):
                one.close()
                self._forget(key)


def _misses(one: Connection, side: int, count: int, *, more: bool, answered: bool = False) -> None:
    if side == _CLIENT:
        one.client_missed(count, more=more, answered=answered)
    else:
        one.server_missed(count, more=more)


def _turned(key: bytes) -> bytes:
    """The key of the other direction."""
    half = len(key) // 2 - 2
    return key[half : 2 * half] + key[:half] + key[-2:] + key[-4:-2]


def _caller(key: bytes) -> str:
    """The client's address; on the host itself its port, by which its process can be found."""
    port = key[-4] << 8 | key[-3]
    if len(key) == 12:
        return f":{port}" if key[0] == 127 else socket.inet_ntop(socket.AF_INET, key[:4])
    if key[:16] == _LOOPBACK_6:
        return f":{port}"
    return socket.inet_ntop(socket.AF_INET6, key[:16])

"""A packet socket with a ring in memory, filtered by the kernel before anything gets in.

Offsets are those of linux/if_packet.h, TPACKET_V3. The socket is cooked (SOCK_DGRAM), so that a
packet begins with its network header on any kind of link.
"""

from __future__ import annotations

import mmap
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dlsched.runtime.wire.bpf import Line, filter_of
from dlsched.runtime.wire.interfaces import LOOPBACK

RETIRE_MS = 200
"""A block is handed over at the latest after this time."""
BLOCK_BYTES = 16 << 10
"""Some 45 packets. A block is handed over whole, however few packets it has, so that many small
ones bridge a longer time in which they are not read."""
BLOCKS_LEAST = 16
"""3.2 s, and 256 KiB: 100 containers take 25 MiB."""
BLOCKS_SHARED = 128
"""Of loopback at first: all containers in the host's network share it."""
BLOCKS_MOST = 512
HEAD_SNAP_BYTES = 1024
"""Of a packet that begins an answer or an upload in HTTP/1, so that the length of its body is
known."""
HELLO_SNAP_BYTES = 2048
"""Of one that begins TLS, so that it is known whether the client may go on in HTTP/2."""
SNAP_BYTES = 256
"""Of any other packet. 96 would leave 10 bytes of what is said over IPv6 with time stamps."""

_SOL_PACKET = 263
_RX_RING, _STATISTICS, _VERSION, _IGNORE_OUTGOING = 5, 6, 10, 23
_TPACKET_V3 = 2
_SO_ATTACH_FILTER = 26
_ETH_P_ALL = 3
_STATUS_AT = 8
"""Offset of a block's status."""
_PACKETS_AT = 12
_LENGTH_AT = 20
_KERNEL, _USER = 0, 1

# Opcodes of the classic packet filter, linux/bpf_common.h.
_LD_W_LEN, _LD_B, _LD_H = 0x80, 0x30, 0x28
_LD_B_X, _LD_H_X, _LD_W_X = 0x50, 0x48, 0x40
_LDX_IHL, _LDX_IMM = 0xB1, 0x01
_TAX = 0x07
_ADD_X, _SUB_X, _AND, _RSH, _ADD = 0x0C, 0x1C, 0x54, 0x74, 0x04
_LD_M, _ST = 0x60, 0x02
_JEQ, _JGT, _JSET = 0x15, 0x25, 0x45
_RET = 0x06


class _Program:
    """A filter being written, with labels in place of distances."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, str | None, str | None]] = []
        self._places: dict[str, int] = {}

    def do(self, code: int, value: int = 0) -> None:
        self._lines.append((code, value, None, None))

    def jump(self, code: int, value: int, yes: str | None, no: str | None = None) -> None:
        """Go on at `yes` or `no`; None: at the next line."""
        self._lines.append((code, value, yes, no))

    def go(self, label: str) -> None:
        self.jump(_JEQ, 0, label, label)

    def here(self, label: str) -> None:
        self._places[label] = len(self._lines)

    def lines(self) -> list[Line]:
        """With distances in place of labels."""

        def distance(label: str | None, at: int) -> int:
            return 0 if label is None else self._places[label] - at

        return [
            (code, distance(yes, at), distance(no, at), value)
            for at, (code, value, yes, no) in enumerate(self._lines, 1)
        ]


PORTS_MAX = 60
"""Ports of one ring: a jump of the filter reaches 255 lines."""


def program(ports: Iterable[int], one_of: int = 1) -> list[Line]:
    """The filter that lets in TCP of these ports that says something, or begins or ends a
    connection; of `one_of` (a power of two) above 1, that part of the connections alone."""
    wanted = sorted(set(ports))
    if not 0 < len(wanted) <= PORTS_MAX:
        raise ValueError(f"{len(wanted)} ports, 1 to {PORTS_MAX}")
    code = _Program()
    _find_tcp(code)
    code.here("tcp")
    code.do(_LD_H_X, 2)
    for port in wanted:
        code.jump(_JEQ, port, "asked")
    code.do(_LD_H_X, 0)
    for port in wanted:
        code.jump(_JEQ, port, "answered")
    code.go("no")
    code.here("asked")
    code.do(_LD_H_X, 0)
    code.go("sampled")
    code.here("answered")
    code.do(_LD_H_X, 2)
    code.here("sampled")
    if one_of > 1:
        code.jump(_JSET, one_of - 1, "no")
    _take(code)
    return code.lines()


_WITH_A_LENGTH = (b"HTTP", b"POST", b"PUT ", b"PATC")
"""How packets begin whose head says how long a body is."""


def _find_tcp(code: _Program) -> None:
    """Go on at `tcp` with X: where TCP begins, and M[1]: the length of the whole packet."""
    code.do(_LD_B, 0)
    code.do(_RSH, 4)
    code.jump(_JEQ, 4, "v4")
    code.jump(_JEQ, 6, "v6", "no")
    code.here("v4")
    code.do(_LD_B, 9)
    code.jump(_JEQ, socket.IPPROTO_TCP, None, "no")
    code.do(_LD_H, 6)
    code.jump(_JSET, 0x1FFF, "no")  # a fragment without the header of TCP
    code.do(_LDX_IHL, 0)
    code.do(_LD_H, 2)
    code.jump(_JEQ, 0, None, "sized")
    code.do(_LD_W_LEN)  # larger than the field can say
    code.here("sized")
    code.do(_ST, 1)
    code.go("tcp")
    code.here("v6")
    code.do(_LD_B, 6)
    code.jump(_JEQ, socket.IPPROTO_TCP, None, "no")
    code.do(_LDX_IMM, 40)
    code.do(_LD_H, 4)
    code.do(_ADD, 40)
    code.do(_ST, 1)


def _take(code: _Program) -> None:
    """Take what says something or begins or ends a connection, and more of the head of an answer;
    nothing at `no`."""
    code.do(_LD_B_X, 13)
    code.jump(_JSET, 0x07, "take")  # FIN, SYN, RST
    code.do(_LD_B_X, 12)
    code.do(_RSH, 2)
    code.do(_AND, 0x3C)
    code.do(_ADD_X)
    code.do(_TAX)  # X: where what is said begins
    code.do(_LD_M, 1)
    code.do(_SUB_X)
    code.jump(_JEQ, 0, "no")
    code.jump(_JSET, 0x80000000, "no")
    code.jump(_JGT, 3, None, "take")
    code.do(_LD_W_X, 0)
    for begins in _WITH_A_LENGTH:
        code.jump(_JEQ, int.from_bytes(begins, "big"), "head")
    code.do(_RSH, 16)
    code.jump(_JEQ, 0x1603, None, "take")
    code.do(_RET, HELLO_SNAP_BYTES)
    code.here("head")
    code.do(_RET, HEAD_SNAP_BYTES)
    code.here("take")
    code.do(_RET, SNAP_BYTES)
    code.here("no")
    code.do(_RET, 0)


@dataclass(frozen=True, slots=True)
class RingCounts:
    """What the kernel counted since it was asked last."""

    packets: int
    """All that passed the filter, with those dropped."""
    dropped: int


class Ring:
    """The packets of one interface; to be closed."""

    def __init__(
        self, interface: str, ports: Iterable[int], *, blocks: int = BLOCKS_LEAST, one_of: int = 1
    ) -> None:
        """Raises OSError: no right to it (CAP_NET_RAW), no such interface, or a kernel without
        rings."""
        self.blocks = blocks
        self.one_of = one_of
        self._at = 0
        self._unread = 0
        # Without a protocol nothing gets in before filter and ring are there.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0)
        try:
            self.filter(ports, one_of)
            self._socket.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
            if interface == LOOPBACK:  # each packet would appear twice
                self._socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
            frame = 2048
            size = blocks * BLOCK_BYTES
            asked = (BLOCK_BYTES, blocks, frame, size // frame, RETIRE_MS, 0, 0)
            self._socket.setsockopt(_SOL_PACKET, _RX_RING, struct.pack("=7I", *asked))
            self._memory = mmap.mmap(self._socket.fileno(), size)
            self._socket.bind((interface, _ETH_P_ALL))
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def filter(self, ports: Iterable[int], one_of: int = 1) -> None:
        """Let in these ports alone from now on. Raises OSError."""
        with filter_of(program(ports, one_of)) as filtered:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filtered)
        self.one_of = one_of

    def ready(self) -> Iterator[bytes]:
        """A copy of each block that the kernel has handed over; it gets the block back when the
        next one is asked for."""
        memory = self._memory
        for _ in range(self.blocks):
            begin = self._at * BLOCK_BYTES
            if not memory[begin + _STATUS_AT] & _USER:
                return
            (length,) = struct.unpack_from("=I", memory, begin + _LENGTH_AT)
            self._unread -= struct.unpack_from("=I", memory, begin + _PACKETS_AT)[0]
            yield memory[begin : begin + min(length, BLOCK_BYTES)]
            struct.pack_into("=I", memory, begin + _STATUS_AT, _KERNEL)
            self._at = (self._at + 1) % self.blocks

    def counts(self) -> RingCounts:
        """What was counted since the last call."""
        packed = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 12)
        packets, dropped, _ = struct.unpack("=III", packed)
        self._unread += packets - dropped
        return RingCounts(packets, dropped)

    def unread(self) -> int:
        """Packets that are in the ring now, as of the last `counts`: what closing it would lose."""
        return max(0, self._unread)

    def close(self) -> None:
        self._memory.close()
        self._socket.close()

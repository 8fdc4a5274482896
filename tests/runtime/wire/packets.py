"""Writes packets and blocks of them as Linux hands them to a packet socket with a ring.

From RFC 791, 8200 and 9293, and the kernel's Documentation/networking/packet_mmap.rst; shares
nothing with the code that reads them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
START_NS = 1_700_000_000_000_000_000
SERVER, CLIENT = "10.0.0.2", "10.0.0.9"
SERVER_6, CLIENT_6 = "fd00::2", "fd00::9"

_BLOCK_HEAD, _PACKET_HEAD, _ADDRESS = 48, 48, 20
_STAMPS = bytes.fromhex("0101080a0000000100000002")
"""Two bytes of padding and time stamps, as nearly all packets have."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet with its network header first."""

    ns: int
    data: bytes
    to_server: bool
    payload: bytes
    seq: int = 0
    flags: int = 0


Snap = Callable[[Packet], int]


def filtered(packet: Packet) -> int:
    """Bytes that the filter of a ring keeps of it."""
    return 1024 if packet.payload[:4] == b"HTTP" else 256


def whole(_packet: Packet) -> int:
    return 1 << 20


def _be(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big")


def tcp(
    source: tuple[str, int],
    target: tuple[str, int],
    seq: int,
    ack: int,
    flags: int,
    payload: bytes = b"",
    options: bytes = _STAMPS,
    ip_options: bytes = b"",
) -> bytes:
    """A TCP segment with its network header."""
    head = _be(source[1], 2) + _be(target[1], 2) + _be(seq % 2**32, 4) + _be(ack % 2**32, 4)
    head += bytes([(20 + len(options)) // 4 << 4, flags]) + b"\x01\x00" + bytes(4) + options
    addresses = ipaddress.ip_address(source[0]).packed + ipaddress.ip_address(target[0]).packed
    length = len(head) + len(payload)
    if len(addresses) == 32:
        field_of_length = length if length < 65536 else 0
        return b"\x60\0\0\0" + _be(field_of_length, 2) + b"\x06\x40" + addresses + head + payload
    words = 5 + len(ip_options) // 4
    total = 4 * words + length
    network = bytes([0x40 | words, 0]) + _be(total if total < 65536 else 0, 2)
    return network + b"\0\1\x40\0\x40\x06\0\0" + addresses + ip_options + head + payload


def block(packets: Iterable[Packet], snap: Snap = filtered) -> bytes:
    """One block of a ring of version 3 with these packets."""
    packets = list(packets)
    body = b""
    for number, packet in enumerate(packets):
        kept = packet.data[: snap(packet)]
        net = (_PACKET_HEAD + _ADDRESS + 15) // 16 * 16
        size = (net + len(kept) + 7) // 8 * 8
        following = size if number + 1 < len(packets) else 0
        sec, nsec = divmod(packet.ns, 10**9)
        numbers = (following, sec, nsec, len(kept), len(packet.data), 1)
        head = b"".join(one.to_bytes(4, "little") for one in numbers)
        head += net.to_bytes(2, "little") * 2
        body += (head.ljust(net, b"\0") + kept).ljust(size, b"\0")
    numbers = (1, _BLOCK_HEAD, 1, len(packets), _BLOCK_HEAD, _BLOCK_HEAD + len(body))
    head = b"".join(one.to_bytes(4, "little") for one in numbers)
    return head.ljust(_BLOCK_HEAD, b"\0") + body


@dataclass(slots=True)
class Talk:
    """One connection; packets of both sides with right sequence numbers, at times in milliseconds.
    What is said to be `unseen` was sent, but not captured."""

    port: int = 8000
    client_port: int = 40000
    ipv6: bool = False
    local: bool = False
    seqs: list[int] = field(default_factory=lambda: [1000, 5000])
    """The next sequence numbers of client and server."""
    packets: list[Packet] = field(default_factory=list)

    def _send(
        self, ms: float, way: int, payload: bytes, flags: int, unseen: bool, seq: int | None = None
    ) -> Packet:
        client, server = (CLIENT_6, SERVER_6) if self.ipv6 else (CLIENT, SERVER)
        if self.local:
            client = server = "::1" if self.ipv6 else "127.0.0.1"
        ends = (client, self.client_port), (server, self.port)
        ours = self.seqs[way] if seq is None else seq
        data = tcp(ends[way], ends[1 - way], ours, self.seqs[1 - way], flags, payload)
        packet = Packet(START_NS + round(1e6 * ms), data, way == 0, payload, ours, flags)
        if seq is None:
            self.seqs[way] += len(payload) + bool(flags & SYN) + bool(flags & FIN)
        if not unseen:
            self.packets.append(packet)
        return packet

    def syn(self, ms: float) -> Packet:
        return self._send(ms, 0, b"", SYN, False)

    def syn_again(self, ms: float) -> Packet:
        return self._send(ms, 0, b"", SYN, False, self.seqs[0] - 1)

    def accepts(self, ms: float, *, unseen: bool = False) -> Packet:
        return self._send(ms, 1, b"", SYN | ACK, unseen)

    def opens(self, ms: float = 0.0, took_ms: float = 0.0) -> Talk:
        """The handshake."""
        self.syn(ms)
        self.accepts(ms + took_ms)
        return self

    def asks(self, ms: float, payload: bytes, *, unseen: bool = False) -> Packet:
        return self._send(ms, 0, payload, PSH | ACK, unseen)

    def answers(self, ms: float, payload: bytes, *, unseen: bool = False) -> Packet:
        return self._send(ms, 1, payload, PSH | ACK, unseen)

    def client_ends(self, ms: float) -> Packet:
        return self._send(ms, 0, b"", FIN | ACK, False)

    def server_ends(self, ms: float, payload: bytes = b"") -> Packet:
        return self._send(ms, 1, payload, FIN | ACK, False)

    def client_resets(self, ms: float) -> Packet:
        return self._send(ms, 0, b"", RST, False)

    def server_resets(self, ms: float) -> Packet:
        return self._send(ms, 1, b"", RST | ACK, False)

    def again(self, ms: float, packet: Packet) -> None:
        """That packet once more."""
        self.packets.append(replace(packet, ns=START_NS + round(1e6 * ms)))


def merged(talks: Sequence[Talk]) -> list[Packet]:
    """All packets, in the order of time."""
    return sorted((one for talk in talks for one in talk.packets), key=lambda one: one.ns)


def client_hello(*protocols: bytes, extra: int = 0) -> bytes:
    """The greeting of TLS (RFC 8446, 4.1.2), offering these protocols (RFC 7301) behind `extra`
    bytes of another extension."""
    offered = b"".join(bytes([len(one)]) + one for one in protocols)
    offer = b"\0\x10" + _be(len(offered) + 2, 2) + _be(len(offered), 2) + offered
    extensions = b"\0\x0a" + _be(extra, 2) + bytes(extra) + (offer if protocols else b"")
    body = b"\3\3" + bytes(range(32)) + b"\x20" + bytes(32) + b"\0\4\x13\1\x13\2" + b"\1\0"
    body += _be(len(extensions), 2) + extensions
    return record(22, b"\1" + _be(len(body), 3) + body)


def record(kind: int, body: bytes) -> bytes:
    """One record of TLS."""
    return bytes([kind, 3, 3]) + _be(len(body), 2) + body

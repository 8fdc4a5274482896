"""One TCP connection of a watched port: its requests and answers, in order. Pure.

HTTP/1 is parsed, with what was cut off of a packet skipped by its length. Of TLS and of any other
protocol only the turns are seen: the client speaks, the server answers, the client speaks again.
What cannot be told apart is not measured, and counted with the reason.
"""

from __future__ import annotations

import re
from typing import Final

from dlsched.runtime.wire.counts import Ages, PortCounts

NEW: Final = 0
HTTP: Final = 1
TLS: Final = 2
TURNS: Final = 3
UNMEASURED: Final = 4
NAMES: Final = {HTTP: "http", TLS: "tls", TURNS: "turns"}

PIPELINED = "several requests at a time"
UPGRADED = "an upgraded connection, such as WebSocket"
HTTP2 = "HTTP/2"
TUNNEL = "a tunnel (CONNECT)"

HEAD_BYTES = 16 << 10
"""Longest head of an answer that arrives in several packets; programs refuse longer ones."""
ALERT_BYTES = 31
"""A TLS record of at most this size at the end of a connection is its farewell, not a request."""

_MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000

_REQUEST = re.compile(rb"([A-Z]{3,16}) ([/*]|https?://)([^\s?]{0,200})")
_CONNECT = re.compile(rb"CONNECT \S+ HTTP/1")
_PREFACE = b"PRI * HTTP/2"
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked[ \t]*\r", re.IGNORECASE)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_LAST_CHUNK = b"0\r\n\r\n"
_FAILED = frozenset({408, 429, 499})
"""Beside 5xx: as a page's status labels (`runtime.progress.scrape`)."""

# How the answer ends.
_AT_LENGTH: Final = 0
_AT_LAST_CHUNK: Final = 1
_AT_CLOSE: Final = 2
_NOT_SEEN: Final = 3
"""Its length was cut off, or a packet was missed: when the client speaks again, or at the close."""

# Where in the answer the server is.
_IN_HEAD: Final = 0
_IN_BODY: Final = 1


class Connection:
    """Both directions of one connection. Times are nanoseconds of the kernel's wall clock."""

    __slots__ = (
        "_answering", "_app_turns", "_asked_bytes", "_connect_ns", "_counts_turn", "_end",
        "_end_seq", "_failed", "_first_ns", "_head", "_head_only", "_last_ns", "_left", "_stage",
        "asked_ns", "caller", "client_next", "closed", "kind", "open", "port", "ring", "seen_ns",
        "server_next", "skips", "syn_again", "syn_ns", "whole",
    )  # fmt: skip

    def __init__(
        self, port: PortCounts, caller: str, skips: re.Pattern[bytes] | None, ring: int = 0
    ) -> None:
        """`skips`: paths of requests that do not count. `ring`: where it was seen first."""
        self.port = port
        self.ring = ring
        self.caller = caller
        self.skips = skips
        self.kind = NEW
        self.whole = False
        """Whether it was seen from its first packet on."""
        self.client_next: int | None = None
        """The sequence number that the client sends next; None: not seen yet."""
        self.server_next: int | None = None
        self.syn_ns = 0
        """When the client asked for the connection, until it is answered."""
        self.syn_again = False
        """Whether it had to ask again."""
        self.seen_ns = 0
        self.closed = False
        """Whether no more can come of it."""
        self.open = False
        """Whether a request is open that counts, or may count."""
        self.asked_ns = 0
        """When the last byte of the open request came."""
        self._connect_ns = 0
        """How long the connection took, which the first request waited for."""
        self._asked_bytes = 0
        self._answering = False
        self._stage = _IN_HEAD
        self._head = b""
        self._head_only = False
        self._end = _NOT_SEEN
        self._end_seq = 0
        self._left = 0
        """Bytes of the present chunk that are still to come, with its end."""
        self._first_ns = 0
        self._last_ns = 0
        self._failed = False
        self._counts_turn = False
        self._app_turns = 0

    # ------------------------------------------------------------------ the connection itself

    def asks_to_connect(self, ns: int) -> None:
        """A SYN of the client."""
        if self.syn_ns:
            self.syn_again = True
        else:
            self.syn_ns, self.whole = ns, True

    def connects(self, ns: int) -> None:
        """The server's SYN, which answers it."""
        if self.syn_ns:
            self._connect_ns = ns - self.syn_ns
            self.syn_ns, self.syn_again = 0, False

    def client_resets(self) -> None:
        self._break()

    def server_resets(self) -> None:
        if self.syn_ns:  # refused
            self.port.arrivals += 1
            self.port.failed += 1
        self._break()

    def _break(self) -> None:
        if self.open:
            if self._answering and self._end >= _AT_CLOSE:
                self._answered(self._last_ns)
            else:
                self._fails()
        self.closed = True

    def server_ends(self, ns: int) -> None:
        """Its FIN: no more data of the server."""
        if self.open:
            if not self._answering:
                self._fails()
            elif self._end == _AT_CLOSE:
                self._answered(ns)
            elif self._end == _NOT_SEEN:
                self._answered(self._last_ns)
            else:
                self._fails()
        self.closed = True

    def client_ends(self) -> None:
        """Its FIN: the answer may still come."""
        if self.open and self._answering and self._end == _NOT_SEEN:
            self._answered(self._last_ns)

    def client_missed(self) -> None:
        """A packet of the client was not captured: what is open is not known any more."""
        if self.open:
            self.port.lost += 1
            self.open = False

    def server_missed(self) -> None:
        """One of the server: where the answer ends by chunks is not known any more."""
        if not self.open:
            return
        if self._stage == _IN_HEAD and self.kind == HTTP:
            self.port.lost += 1
            self.open = False
        elif self._end == _AT_LAST_CHUNK:
            self._end = _NOT_SEEN

    # ------------------------------------------------------------------ data

    def client_says(self, ns: int, size: int, data: bytes) -> None:
        """`size` bytes of the client, of which the first ones are `data`."""
        if self.kind == NEW:
            self._recognise(data)
        if self.kind == HTTP:
            self._http_asks(ns, size, data)
        elif self.kind in (TLS, TURNS):
            self._turn_begins(ns, size, data)

    def server_says(self, ns: int, seq: int, size: int, data: bytes) -> None:
        """`size` bytes of the server from `seq` on, of which the first ones are `data`."""
        if not self.open:
            return
        if self.kind == HTTP:
            self._http_answers(ns, seq, size, data)
        elif not self._answering:
            self._answering, self._first_ns, self._last_ns = True, ns, ns
        else:
            if self._counts_turn:
                self.port.gaps.add(ns - self._last_ns)
            self._last_ns = ns

    def _recognise(self, data: bytes) -> None:
        """Take the protocol from the client's first bytes."""
        if _REQUEST.match(data):
            self.kind = HTTP
        elif len(data) >= len(_PREFACE) and data.startswith(_PREFACE):
            self._give_up(HTTP2)
            return
        elif _CONNECT.match(data):
            self._give_up(TUNNEL)
            return
        elif len(data) > 2 and data[0] in (22, 23) and data[1] == 3:
            self.kind = TLS
        elif self.whole:
            self.kind = TURNS
        else:  # it began before it was watched: this may be the middle of anything
            return
        name = NAMES[self.kind]
        self.port.connections[name] = self.port.connections.get(name, 0) + 1

    def _give_up(self, why: str) -> None:
        """Measure nothing of this connection any more."""
        unmeasured = self.port.unmeasured
        unmeasured[why] = unmeasured.get(why, 0) + 1
        if self.kind in NAMES:
            name = NAMES[self.kind]
            self.port.connections[name] = self.port.connections.get(name, 0) - 1
        self.kind, self.open, self._head = UNMEASURED, False, b""

    def _begins(self, ns: int, size: int) -> None:
        self.open, self.asked_ns, self._asked_bytes = True, ns, size
        self._answering, self._first_ns, self._last_ns = False, 0, 0
        self._failed, self._stage, self._head = False, _IN_HEAD, b""

    def _answered(self, end_ns: int) -> None:
        """The answer is whole."""
        if self.kind != HTTP and not self._counts_turn:
            self.open = False
            return
        port, since_ns = self.port, self.asked_ns - self._connect_ns
        if self._failed:
            port.failed += 1
        else:
            port.whole.add(end_ns - since_ns)
            if self._first_ns:
                port.first.add(self._first_ns - since_ns)
        self.open, self._connect_ns = False, 0

    def _fails(self) -> None:
        """No answer, or none to its end."""
        if self.kind == HTTP or (self._counts_turn and self._asked_bytes > ALERT_BYTES):
            self.port.failed += 1
        self.open = False

    # ------------------------------------------------------------------ HTTP/1

    def _http_asks(self, ns: int, size: int, data: bytes) -> None:
        request = _REQUEST.match(data)
        if self.open:
            if self._answering and self._end != _NOT_SEEN:
                self._give_up(PIPELINED)
                return
            if not self._answering:
                if request is not None:
                    self._give_up(PIPELINED)
                else:  # the rest of an upload
                    self.asked_ns = ns
                return
            self._answered(self._last_ns)
        if request is None:
            return
        head_end = data.find(b"\r\n\r\n")
        if 0 <= head_end < size - 4 and _more_requests(data, head_end + 4):
            self._give_up(PIPELINED)
            return
        if self.skips is not None and self.skips.fullmatch(_path(request)):
            self._connect_ns = 0
            return
        self._begins(ns, size)
        self._head_only = request[1] == b"HEAD"
        self.port.arrivals += 1
        self.port.called_by(self.caller)

    def _http_answers(self, ns: int, seq: int, size: int, data: bytes) -> None:
        at = 0
        while self._stage == _IN_HEAD:
            begin = len(self._head)
            head = self._head + data[at:]
            status = _STATUS.match(head)
            if status is None:
                if len(head) < 12 and at + len(head) - begin == size:
                    self._head = head  # the status itself is cut in two
                    return
                self.port.lost += 1
                self.open = False
                return
            if not self._answering:
                self._answering = True
            end = head.find(b"\r\n\r\n")
            if end < 0:
                self._last_ns = ns
                if len(data) == size and len(head) < HEAD_BYTES:
                    self._head = head
                    return
                # The rest of the head was cut off, and with it how long the body is.
                self._failed = _is_failure(int(status[1]))
                self._stage, self._end, self._head = _IN_BODY, _NOT_SEEN, b""
                return
            at += end + 4 - begin
            code = int(status[1])
            if code == 101:
                self._give_up(UPGRADED)
                return
            self._head = b""
            if code < 200:  # no answer yet
                self._answering = False
                if at >= size:
                    return
                continue
            self._body_follows(code, head[: end + 2], seq + at)
            self._last_ns = ns
            if self._end == _AT_LENGTH and self._end_seq == (seq + at) & _MASK:
                self._first_ns = ns
                self._answered(ns)
                return
            if at >= size:
                return
        self._body(ns, seq, size, data, at)

    def _body_follows(self, code: int, head: bytes, seq: int) -> None:
        self._stage, self._failed = _IN_BODY, _is_failure(code)
        length = _LENGTH.search(head)
        if self._head_only or code in (204, 304):
            self._end, self._end_seq = _AT_LENGTH, seq & _MASK
        elif _CHUNKED.search(head):
            self._end, self._left = _AT_LAST_CHUNK, 0
        elif length is not None:
            self._end, self._end_seq = _AT_LENGTH, (seq + int(length[1])) & _MASK
        else:
            self._end = _AT_CLOSE

    def _body(self, ns: int, seq: int, size: int, data: bytes, at: int) -> None:
        if not self._first_ns:
            self._first_ns = ns
        elif ns > self._last_ns:
            self.port.gaps.add(ns - self._last_ns)
        self._last_ns = ns
        if self._end == _AT_LENGTH:
            behind = (seq + size - self._end_seq) & _MASK
            if behind < _HALF:
                self._answered(ns)
        elif self._end == _AT_LAST_CHUNK:
            self._chunks(ns, size, data, at)
        elif self._end == _NOT_SEEN and size == len(_LAST_CHUNK) and data == _LAST_CHUNK:
            self._answered(ns)

    def _chunks(self, ns: int, size: int, data: bytes, at: int) -> None:
        """Follow the chunks through this packet, from `at` on."""
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                continue
            if at >= len(data):
                self._end = _NOT_SEEN  # the next size was cut off
                return
            rest = self._head + data[at:] if self._head else data[at:]
            found = _SIZE.match(rest)
            if found is None:
                whole = len(data) == size and len(rest) < 64
                self._head = rest if whole else b""  # the size itself is cut in two
                if not whole:
                    self._end = _NOT_SEEN
                return
            at += found.end() - len(self._head)
            self._head = b""
            chunk = int(found[1], 16)
            if chunk == 0:
                # Trailers may follow; the answer is whole for whoever reads its body.
                self._answered(ns)
                return
            self._left = chunk + 2

    # ------------------------------------------------------------------ turns

    def _turn_begins(self, ns: int, size: int, data: bytes) -> None:
        if self.open and not self._answering:  # it goes on
            self.asked_ns = ns
            self._asked_bytes += size
            return
        if self.open:
            self._answered(self._last_ns)
        self._begins(ns, size)
        self._counts_turn = self.kind == TURNS or self._is_request_in_tls(data)
        if self._counts_turn:
            self.port.arrivals += 1
            self.port.called_by(self.caller)

    def _is_request_in_tls(self, data: bytes) -> bool:
        """Whether a turn that begins so can be a request: not the handshake, and not the first
        records after it, which may be its end."""
        if len(data) < 3 or data[0] != 23 or data[1] != 3:
            self._app_turns = 0 if data[:1] in (b"\x14", b"\x16") else self._app_turns
            return False
        self._app_turns += 1
        return self._app_turns > 1

    def ages_ns(self, now_ns: int) -> Ages:
        """How long the open request waits for its whole answer, its first byte, its next byte;
        None: it does not, or when that ends is not seen."""
        if self.syn_again:
            age = now_ns - self.syn_ns
            return age, age, None
        if not self.open or (self.kind != HTTP and not self._counts_turn):
            return None, None, None
        age, since_ns = now_ns - self.asked_ns + self._connect_ns, self._last_ns
        first = None if self._first_ns else age
        if self._answering and self._end == _NOT_SEEN:
            return None, None if self.kind != HTTP else first, None
        return age, first, now_ns - since_ns if self._first_ns else None


def _is_failure(code: int) -> bool:
    return code >= 500 or code in _FAILED


def _path(request: re.Match[bytes]) -> bytes:
    if request[2] == b"/":
        return b"/" + request[3]
    if request[2] == b"*":
        return b"*"
    return b"/" + request[3].partition(b"/")[2]


def _more_requests(data: bytes, at: int) -> bool:
    """Whether what follows the first request's head is another request, and not its body."""
    return _REQUEST.match(data, at) is not None

"""One TCP connection of a watched port: its requests and answers, in order. Pure.

HTTP/1 is parsed, with what was cut off of a packet skipped by its length. Of TLS and of any other
protocol only the turns are found: the client speaks, the server answers, the client speaks again.
What is ambiguous is not measured, and counted with the reason. A time counts only where
both its ends were captured; where that shows later, it is held until then.
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

PIPELINED = "connections with several requests at a time (pipelining)"
UPGRADED = "upgraded connections, such as WebSocket"
HTTP2 = "HTTP/2"
HTTP2_IN_TLS = "TLS connections that may carry HTTP/2"
SHORT_TLS = "TLS connections with too few requests"
STARTTLS = "connections that change to TLS"
TUNNEL = "tunnels (CONNECT)"
EARLY = "connections with an upload that is answered early"
BEFORE = "connections opened before dlsched watched the container (those opened later are measured)"
NO_REQUEST = "connections that do not begin with an HTTP/1 request"

HEAD_BYTES = 4 << 10
"""Longest head of a request or answer that is put together from several packets. Most programs
send a head in one packet; this bounds what full tables take."""
ALERT_BYTES = 31
"""A TLS record of at most this size is a farewell or a change of keys, and no request: that of the
shortest request in HTTP/1 is longer."""
FAREWELL_BYTES = 24
"""Size of the record with which TLS 1.3 says goodbye."""
END_BYTES, END_BYTES_MAX = 64, 80
"""Size of the records with which a client ends the handshake of TLS 1.3, by the checksum in use."""
INTERIM_BYTES = 85
"""Size of `HTTP/1.1 100 Continue` as a TLS record with the widest padding and checksum in use."""
PUSH_NS = 30_000_000_000
"""What a server sends for so long after its first byte may be sent unasked, such as a notice or a
farewell. Idle connections are closed after 60 s or later by most programs."""
SYN_SLACK_NS = 2_000_000_000
"""A client that waits to connect asks again after at most as long as it has waited, and 1 s."""

_METHOD = (
    rb"(GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|TRACE|CONNECT|QUERY|SEARCH|REPORT|PURGE|COPY|MOVE|"
    rb"LOCK|UNLOCK|MKCOL|PROPFIND|PROPPATCH)"
)
"""Those in use: what is left of a method of which the beginning was missed is none."""
_REQUEST = re.compile(_METHOD + rb" (\S+) HTTP/1\.[01]\r?\n")
_CUT_REQUEST = re.compile(_METHOD + rb" ([/*h]\S*)(?: [HTP/.01]{0,8}\r?)?\Z")
"""A request's first line of which the end was cut off."""
_BEGUN = re.compile(rb"[A-Z]{1,16}(?: (?:\S+(?: [HTP/.012]{0,8}\r?)?)?)?\Z")
"""What may become a request's first line."""
_NO_BODY = frozenset({b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"TRACE"})
_PREFACE = b"PRI * HTTP/2"
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])")
_DIGITS = re.compile(rb"[ \t]*([0-9]{1,15})[ \t]*\r")
_FRAMING = re.compile(rb"\r\n(?:(transfer-encoding)|content-length):", re.IGNORECASE)
"""A line of a head that says how long the body is. One search of this takes half of the time of
two for the words in small letters."""
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked[ \t]*\r")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_LAST = re.compile(rb"0+[ \t]*(?:;[^\r\n]*)?\r\n(?:[^\r\n]+\r\n)*\r\n")
_SIZE_BYTES = 64
"""Longest first line of a chunk that is put together from two packets."""
_LAST_CHUNK = b"0\r\n\r\n"
_FAILED = frozenset({408, 429, 499})
"""Beside 5xx: as a page's status labels (`runtime.progress.scrape`)."""

# How long a body is, where that is no number.
_BY_CHUNKS: Final = -2
_UNKNOWN: Final = -1

# How the answer ends.
_AT_LENGTH: Final = 0
_AT_LAST_CHUNK: Final = 1
_AT_CLOSE: Final = 2
_OPEN_END: Final = 3
"""Its length was cut off, or a packet was missed: when the client speaks again."""

_NOT_KNOWN: Final = -1
"""For a time: it was not captured."""


class Connection:
    """Both directions of one connection. Times are nanoseconds of the kernel's wall clock."""

    __slots__ = (
        "_ahead", "_answer_bytes", "_answering", "_app_turns", "_ask", "_ask_left", "_asked_bytes",
        "_asked_more", "_astray", "_chunked", "_connect_ns", "_counts", "_end", "_failed",
        "_farewell_ns", "_first_ns", "_head", "_held", "_in_body", "_last_ns", "_left", "_likely",
        "_method", "_part_ns", "_reported", "_spoke", "_turns", "asked_ns", "caller", "closed",
        "ended", "heard_ns", "isn", "kind", "nexts", "open", "port", "ring", "syn_again", "syn_ns",
        "whole",
    )  # fmt: skip

    def __init__(self, port: PortCounts, caller: str, ring: int = 0) -> None:
        """`ring`: where it was found first."""
        self.port = port
        self.ring = ring
        self.caller = caller
        self.kind = NEW
        self.whole = False
        """Whether it was captured from its first packet on."""
        self.isn: int | None = None
        """The sequence number of the client's SYN."""
        self.nexts: list[int | None] = [None, None]
        """The sequence number that client and server send next; None: not known yet."""
        self.ended = 0
        """Bit 0: the client sends no more; bit 1: the server."""
        self.syn_ns = 0
        """When the client asked for the connection, until it is answered."""
        self.syn_again = False
        """Whether it had to ask again."""
        self.heard_ns = 0
        self.closed = False
        """Whether no more can come of it."""
        self._begins(0, 0)
        self._astray = False
        """Whether a packet was missed, and no answer since is proven: what the server says may
        answer a request that was not captured."""
        self.open = False
        """Whether a request is open."""
        self._counts = False
        """Whether that request counts."""
        self._method = b""
        self._ask = b""
        """The beginning of a request whose head is not complete."""
        self._ask_left = 0
        """Bytes of the request that are still to come, or _UNKNOWN."""
        self._held: tuple[int, int, bool] | None = None
        """The previous answer, where what follows must show that it ended as it seemed to."""
        self._connect_ns = 0
        """How long the connection took, which the first request waited for; or _NOT_KNOWN."""
        self._left = 0
        """Bytes of the body, or of the present chunk with its end, that are still to come."""
        self._chunked = False
        """Whether an answer whose end is not known comes in chunks."""
        self._app_turns = 0
        self._turns = 0
        """Turns that counted."""
        self._ahead = False
        """Whether what the client says now follows a request that has no answer yet."""
        self._spoke = False
        """Whether the server has spoken."""

    def _begins(self, ns: int, size: int) -> None:
        """A request, with its last byte so far at `ns`."""
        self.open = True
        self.asked_ns = ns
        """When the last byte of the open request came."""
        self._asked_bytes = size
        self._reported = False
        """Whether what was missed since it began is counted as lost."""
        self._answering = self._in_body = self._failed = False
        self._asked_more = False
        """Whether more came of a request of unknown length."""
        self._likely = False
        """Whether the answer's last packet had room for the last chunk alone."""
        self._head = b""
        """What is not complete of the answer: its head, or the first line of a chunk."""
        self._end: int = _OPEN_END
        self._first_ns = 0
        """When the first byte of the body came; 0: not yet; or _NOT_KNOWN."""
        self._part_ns = 0
        """When the last packet with a part of the body came; 0: not known."""
        self._last_ns = self._farewell_ns = self._answer_bytes = 0

    # ------------------------------------------------------------------ the connection itself

    def asks_to_connect(self, ns: int) -> None:
        """A SYN of the client; one that comes after the connection was made says nothing."""
        if self.kind != NEW or self.nexts[1] is not None:
            return
        if self.syn_ns:
            self.syn_again = True
        else:
            self.syn_ns, self.whole = ns, True

    def connects(self, ns: int) -> None:
        """The server's SYN, which answers it."""
        if self.syn_ns:
            self._connect_ns = ns - self.syn_ns
            self.syn_ns, self.syn_again = 0, False

    def gave_up(self, now_ns: int) -> bool:
        """Whether the client waits no longer to be connected: it would have asked again."""
        waited_ns = self.heard_ns - self.syn_ns
        return self.syn_again and now_ns - self.syn_ns > 2 * waited_ns + SYN_SLACK_NS

    def not_connected(self) -> None:
        """Refused, or the client waits no longer."""
        self.port.arrivals += 1
        self.port.failed += 1
        self.port.called_by(self.caller)
        self.syn_ns, self.syn_again = 0, False

    def resets(self, of_server: bool) -> None:
        """Either side ends it abruptly: what is open gets no answer, or none to its end."""
        if of_server and self.syn_ns:
            self.not_connected()
        unknown = self.kind != HTTP or (self._in_body and self._end == _OPEN_END)
        if self.open and not (self._answering and unknown):
            self._fails()
        self.close()

    def server_ends(self, ns: int) -> None:
        """Its FIN: no more data of the server."""
        if not self.open:
            return
        if not self._answering:
            self._fails()
        elif self.kind != HTTP:
            self._turn_ends()
        elif self._in_body and self._end == _AT_CLOSE:
            self._answered(ns)
        elif self._end != _OPEN_END or not self._in_body:
            self._fails()
        elif self._likely:
            self._answered(self._last_ns)
        else:
            self.lose()

    def client_ends(self) -> None:
        """Its FIN: the answer may still come, but no more of a request."""
        if self.open:
            if self.kind == TLS and self._answering:
                self._turn_ends()
        elif self._held is not None and not self._ask:
            # The server did not wait for the rest, if there was one; or a request may be left
            # without an answer, and the one before had it.
            if self.ended & 2 or self._astray:
                self.lose()
            else:
                self._is_proven()

    def close(self) -> None:
        """No more can come of it, or it is followed no longer."""
        if self.open or self._held is not None:
            self.lose()
        if self.kind == TLS and not self._turns:
            self._give_up(SHORT_TLS)
        self.closed = True

    def client_missed(self, count: int, *, more: bool, answered: bool = False) -> None:
        """`count` bytes of the client were not captured. `more`: later ones were. `answered`: so
        were some of the server, before that."""
        self._ahead = more and not answered
        if self.kind == NEW:
            self._misses_request()
            self.whole = self.syn_again = False
            self.syn_ns = 0
            self.lose()
        elif self.kind in NAMES:
            if more and self.open and not self._answering and count < self._ask_left:
                self._ask_left -= count
                return
            if not (self.open and self._counts):
                self._misses_request()
            self.lose()

    def server_missed(self, count: int, *, more: bool) -> None:
        """`count` bytes of the server were not captured. `more`: later ones were."""
        if not self.open:
            self._answers_none()
            return
        if self.kind != HTTP:
            if not more:
                self.lose()
            self._first_ns = self._first_ns or _NOT_KNOWN
            self._part_ns = self._farewell_ns = 0
            return
        if not self._in_body:
            self.lose()
            return
        if count < self._left and self._end in (_AT_LENGTH, _AT_LAST_CHUNK):
            self._left -= count
        elif self._end != _AT_CLOSE:
            if self._end == _AT_LENGTH or not more:
                self.lose()
                return
            self._cut_off()
        self._first_ns = self._first_ns or _NOT_KNOWN
        self._part_ns, self._likely = 0, False

    def lose(self) -> None:
        """What is open is not known any more; the next request is."""
        if self._held is not None:
            self.port.lost += 1
            self._held = None
        if self.open and self._counts:
            self.port.lost += 1
            self._reported = True
        self.open, self._astray, self._ask, self._head = False, True, b"", b""
        self._connect_ns = 0

    def _misses_request(self) -> None:
        """One that whose beginning was not captured, or more of them."""
        self.port.lost += not self._reported
        self._astray = self._reported = True

    def _answers_none(self) -> None:
        """The server said something though no request is open: it may answer what has begun to
        come, or the previous answer was that of another request."""
        if self._ask:
            self._misses_request()
            self.whole = False
        if self._ask or self._held is not None:
            self.lose()

    # ------------------------------------------------------------------ data

    def client_says(self, ns: int, size: int, data: bytes) -> None:
        """`size` bytes of the client, of which the first ones are `data`."""
        if self.kind == HTTP:  # nearly all
            self._http_asks(ns, size, data)
            self._ahead = False
            return
        if self.syn_ns:  # said with the SYN, or the server's SYN was missed
            self._connect_ns = 0 if ns == self.syn_ns else _NOT_KNOWN
            self.syn_ns, self.syn_again = 0, False
        if self.kind == NEW:
            if self._ask:
                data, size = self._ask + data, size + len(self._ask)
                self._ask = b""
            self._recognise(size, data)
        if self.kind == HTTP:
            self._http_asks(ns, size, data)
        elif self.kind in (TLS, TURNS):
            self._turn_begins(ns, size, data)
        self._ahead = False

    def server_says(self, ns: int, size: int, data: bytes) -> None:
        """`size` bytes of the server, of which the first ones are `data`."""
        self._spoke = True
        if self.kind == HTTP:
            if self.open:
                self._http_answers(ns, size, data)
            elif not self._astray and (status := _STATUS.match(data)) and status[1] != b"408":
                self._give_up(PIPELINED)  # the answer to a request that was not captured
            else:
                self._answers_none()
        elif self.open:
            self._turn_goes_on(ns, size, data)
        elif self.kind == NEW:
            if not self.whole:
                self._misses_request()
            self._answers_none()

    def _recognise(self, size: int, data: bytes) -> None:
        """Take the protocol from the client's first bytes."""
        cut = len(data) < size
        if _REQUEST.match(data) or (cut and _CUT_REQUEST.match(data)):
            self.kind, self._astray = HTTP, self._astray or not self.whole
        elif data.startswith(_PREFACE):
            self._give_up(HTTP2)
            return
        elif not cut and size < HEAD_BYTES and _BEGUN.match(data):
            self._ask = data
            return
        elif data[:2] in (b"\x16\x03", b"\x17\x03", b"\x16", b"\x17"):
            if may_be_http2(data):
                self._give_up(HTTP2_IN_TLS)
                return
            self.kind = TLS
        elif self.whole:
            self.kind = TURNS
        else:  # this may be the middle of anything
            self._misses_request()
            if self._spoke:
                self._give_up(BEFORE)
            return
        name = NAMES[self.kind]
        self.port.connections[name] = self.port.connections.get(name, 0) + 1

    def _give_up(self, why: str) -> None:
        """Measure nothing of this connection any more."""
        self.lose()
        port = self.port
        port.unmeasured[why] = port.unmeasured.get(why, 0) + 1
        if self.kind in NAMES:
            name = NAMES[self.kind]
            port.connections[name] = port.connections.get(name, 0) - 1
        self.kind = UNMEASURED

    def _arrives(self) -> None:
        self.port.arrivals += 1
        self.port.called_by(self.caller)

    def _count(self, whole_ns: int, first_ns: int, failed: bool) -> None:
        """`first_ns` below zero: not known."""
        port = self.port
        if failed:
            port.failed += 1
        elif whole_ns < 0:  # the clock was set back
            port.lost += 1
        else:
            index = port.whole.add(whole_ns)
            if first_ns >= 0:
                port.first.add(first_ns, index if first_ns == whole_ns else None)

    def _fails(self) -> None:
        """No answer, or none to its end."""
        if self.kind == HTTP or self._asked_bytes > ALERT_BYTES:
            self.port.failed += self._counts
        self.open = False

    def _since_ns(self) -> int:
        """Since when the request that is answered now has waited; 0: it does not count, or that is
        not known."""
        connect_ns, self._connect_ns = self._connect_ns, 0
        if not self._counts:
            return 0
        if connect_ns < 0:
            self.port.lost += 1
            return 0
        return self.asked_ns - connect_ns

    # ------------------------------------------------------------------ HTTP/1: requests

    def _http_asks(self, ns: int, size: int, data: bytes) -> None:
        if self.open and not self._answering:
            self._asks_more(ns, size, data)
            return
        if self._ask:
            joined, self._ask = self._ask + data, b""
            # Where packets were missed, what came before may be the end of something else.
            followed = self._held is not None or not self._astray
            if followed or _BEGUN.match(joined) or _REQUEST.match(joined):
                data, size = joined, size + len(joined) - len(data)
        cut = len(data) < size
        request = _REQUEST.match(data) or (_CUT_REQUEST.match(data) if cut else None)
        if self.open and (self._end != _OPEN_END or not self._in_body or request is None):
            self._give_up(EARLY if request is None else PIPELINED)
        elif request is None:
            self._asks_nothing(size, data, cut)
        elif request[1] == b"CONNECT":
            self._give_up(TUNNEL)
        else:
            self._is_proven()
            if self.open:
                self._answered(self._last_ns, proven=False)
            self._http_begins(ns, size, data, request)

    def _asks_nothing(self, size: int, data: bytes, cut: bool) -> None:
        """What is no request where one could begin."""
        if not cut and size < HEAD_BYTES and _BEGUN.match(data):
            self._ask = data
        elif self._held is not None:
            self._give_up(EARLY)
        elif not self._astray and data.strip(b"\r\n"):
            self._give_up(NO_REQUEST)

    def _http_begins(self, ns: int, size: int, data: bytes, request: re.Match[bytes]) -> None:
        self._begins(ns, size)
        self._method = request[1]
        skips = self.port.skips
        self._counts = skips is None or skips.fullmatch(_path(request[2])) is None
        if self._counts:
            self._arrives()
        else:
            self._connect_ns = 0
        if self._ahead:
            self._give_up(PIPELINED)
        else:
            self._head_of_request(size, data)

    def _head_of_request(self, size: int, data: bytes) -> None:
        """Find where the request ends that begins with these bytes."""
        end = data.find(b"\r\n\r\n")
        self._ask, self._ask_left = b"", _UNKNOWN
        if end < 0:
            if len(data) == size and size < HEAD_BYTES:
                self._ask = data
            return
        length = _length(data[: end + 2])
        if length is None or length >= 0:
            self._ask_left = (length or 0) - (size - end - 4)
            if self._ask_left < 0:
                self._give_up(PIPELINED)

    def _asks_more(self, ns: int, size: int, data: bytes) -> None:
        """More of the request that is open."""
        self.asked_ns = ns
        if self._ask:
            self._head_of_request(len(self._ask) + size, self._ask + data)
        elif self._ask_left == _UNKNOWN:
            if _REQUEST.match(data) or (len(data) < size and _CUT_REQUEST.match(data)):
                self._give_up(PIPELINED)
            self._asked_more = True
        elif size > self._ask_left:
            self._give_up(PIPELINED)
        else:
            self._ask_left -= size

    # ------------------------------------------------------------------ HTTP/1: answers

    def _answered(self, end_ns: int, *, proven: bool = True) -> None:
        """The answer is whole, or seems to be."""
        self.open = False
        if self._ask_left > 0:
            self.port.failed += self._counts and self._failed
            self.port.lost += self._counts and not self._failed
            self._counts = False
            self._give_up(EARLY)
            return
        if self._ask or self._ask_left == _UNKNOWN:
            unknown = self._ask or self._asked_more or self._method not in _NO_BODY
            if unknown and not self.ended & 1:
                proven = False  # more of the request may come
        if self._astray:
            proven = False
        self._ask = b""
        since_ns = self._since_ns()
        if not since_ns:
            return
        first_ns = self._first_ns - since_ns if self._first_ns > 0 else _NOT_KNOWN
        if proven:
            self._count(end_ns - since_ns, first_ns, self._failed)
        else:
            self._held = end_ns - since_ns, first_ns, self._failed

    def _is_proven(self) -> None:
        """What followed shows that the previous answer ended as it seemed to."""
        if self._held is not None:
            self._count(*self._held)
            self._held, self._astray = None, False

    def _http_answers(self, ns: int, size: int, data: bytes) -> None:
        if self._in_body:
            self._body(ns, size, data)
            return
        cut = len(data) < size
        if self._head:
            data, size = self._head + data, size + len(self._head)
            self._head = b""
        at = 0
        while True:
            status = _STATUS.match(data, at)
            if status is None:
                if cut or len(data) - at >= 12:
                    self.lose()
                else:  # the status itself is cut in two
                    self._head, self._answering = data[at:], True
                return
            self._is_proven()
            code = int(status[1])
            self._last_ns, self._answering = ns, code >= 200
            end = data.find(b"\r\n\r\n", at)
            if end < 0:
                self._head_is_cut(code, data[at:], cut)
                return
            if code >= 200:
                break
            if code == 101:
                self._give_up(UPGRADED)
                return
            at = end + 4
            if at >= size:
                return
        self._in_body, self._failed = True, _is_failure(code)
        self._body_follows(code, data[at : end + 2])
        at = end + 4
        rest = size - at
        if self._end == _AT_LENGTH and self._left in (0, rest):  # all of it is in this packet
            self._first_ns = ns
            self._answered(ns)
            if self._left < rest:
                self._give_up(PIPELINED)
        elif rest > 0:
            self._body(ns, rest, data[at:])

    def _head_is_cut(self, code: int, head: bytes, cut: bool) -> None:
        if not cut and len(head) < HEAD_BYTES:
            self._head = head
        elif code < 200:
            self.lose()
        else:  # with the rest of the head, how long the body is
            self._failed, self._in_body, self._first_ns = _is_failure(code), True, _NOT_KNOWN
            self._end, self._chunked = _OPEN_END, bool(_CHUNKED.search(head.lower()))

    def _body_follows(self, code: int, head: bytes) -> None:
        length = 0 if self._method == b"HEAD" or code in (204, 304) else _length(head)
        self._chunked = length == _BY_CHUNKS
        if length is None:
            self._end = _AT_CLOSE
        elif length >= 0:
            self._end, self._left = _AT_LENGTH, length
        else:
            self._end, self._left = (_AT_LAST_CHUNK if self._chunked else _OPEN_END), 0

    def _body(self, ns: int, size: int, data: bytes) -> None:
        if self._end == _AT_LAST_CHUNK:
            self._chunks(ns, size, data)
        elif self._end == _OPEN_END:
            self._unfollowed(ns, size, data)
        else:
            self._part(ns)
            if self._end == _AT_LENGTH:
                self._left -= size
                if self._left <= 0:
                    self._answered(ns)
                    if self._left < 0:
                        self._give_up(PIPELINED)

    def _part(self, ns: int) -> None:
        """A packet with a part of the body."""
        if not self._first_ns:
            self._first_ns = ns
        elif self._counts and 0 < self._part_ns < ns and not self._astray:
            self.port.gaps.add(ns - self._part_ns)
        self._last_ns = self._part_ns = ns

    def _cut_off(self) -> None:
        """Where the chunks end is not known any more."""
        self._end, self._head, self._left = _OPEN_END, b"", 0
        self._part_ns, self._likely = 0, False

    def _chunks(self, ns: int, size: int, data: bytes) -> None:
        """Follow the chunks through this packet."""
        cut = len(data) < size
        if self._head:
            data, size = self._head + data, size + len(self._head)
            self._head = b""
        at, part, last = 0, False, None
        self._last_ns = ns
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                part |= self._left > 2  # its end alone is no part of the body
                self._left -= step
                at += step
                continue
            found = _SIZE.match(data, at)
            ends = found is not None and not int(found[1], 16)
            last = _LAST.match(data, at) if ends else None
            if last is not None:
                break
            if found is None or ends:
                longest = HEAD_BYTES if ends else _SIZE_BYTES
                if not cut and size - at < longest:
                    self._head = data[at:]
                break
            at, self._left = found.end(), int(found[1], 16) + 2
        if part:
            self._part(ns)
        if last is not None:
            self._answered(ns)
            if last.end() < size:
                self._give_up(PIPELINED)
        elif at < size and not self._head:
            likely = at >= len(data) and size - at == len(_LAST_CHUNK)
            self._cut_off()
            self._first_ns = self._first_ns or _NOT_KNOWN
            self._likely = likely

    def _unfollowed(self, ns: int, size: int, data: bytes) -> None:
        """More of an answer whose end is not known; it is known again by a packet that is one whole
        chunk."""
        self._last_ns, self._likely = ns, False
        self._first_ns = self._first_ns or ns
        if not self._chunked:
            return
        if size == len(_LAST_CHUNK) and data == _LAST_CHUNK:
            self._answered(ns)
        elif (found := _SIZE.match(data)) and found.end() + int(found[1], 16) + 2 == size:
            self._end = _AT_LAST_CHUNK
            self._chunks(ns, size, data)

    # ------------------------------------------------------------------ turns

    def _turn_begins(self, ns: int, size: int, data: bytes) -> None:
        if self.kind == TURNS and data[:2] == b"\x16\x03" and data[5:6] == b"\x01":
            self._give_up(STARTTLS)
            return
        if self.open and not self._answering:  # it goes on
            if self._asked_bytes >= END_BYTES and _is_sealed(data):
                self._leaves_out()
            self.asked_ns = ns
            self._asked_bytes += size
            return
        if self.kind == TLS and size <= ALERT_BYTES:
            return
        if self.open:
            self._last_ns = self._farewell_ns or self._last_ns
            self._turn_ends()
        self._begins(ns, size)
        self._astray = False
        self._counts = self.kind == TURNS or self._is_request_in_tls(data)
        if self._counts:
            self._arrives()
        elif self._app_turns or (data[:1] == b"\x14" and size > END_BYTES_MAX + ALERT_BYTES):
            self._leaves_out()

    def _leaves_out(self) -> None:
        """A request in TLS may be in this turn, which is not measured."""
        if self.kind == TLS and not (self._counts or self._reported):
            self.port.lost += 1
            self._reported = True

    def _turn_goes_on(self, ns: int, size: int, data: bytes) -> None:
        """The server answers."""
        if self._answering and self.kind == TLS and _may_be_farewell(size, data):
            self._farewell_ns = ns
            return
        if self.kind == TURNS:
            self._part(ns)
        self._answering, self._last_ns, self._farewell_ns = True, ns, 0
        self._first_ns = self._first_ns or ns
        self._answer_bytes += size

    def _turn_ends(self) -> None:
        """The client speaks again, or either side closes."""
        self.open = False
        since_ns = self._since_ns()
        if not since_ns:
            return
        interim = self.kind == TLS and self._answer_bytes <= INTERIM_BYTES
        if interim or self._last_ns - max(self._first_ns, self.asked_ns) > PUSH_NS:
            self.port.lost += 1
            return
        self._turns += 1
        # The first byte in TLS is one of the answer's head.
        first_ns = self._first_ns - since_ns if self.kind == TURNS and self._first_ns > 0 else -1
        self._count(self._last_ns - since_ns, first_ns, failed=False)

    def _is_request_in_tls(self, data: bytes) -> bool:
        """Whether a turn that begins so can be a request: not the handshake, and not the first
        records after it, which may be its end."""
        if not _is_sealed(data):
            self._app_turns = 0 if data[:1] in (b"\x14", b"\x16") else self._app_turns
            return False
        self._app_turns += 1
        return self._app_turns > 1

    def ages_ns(self, now_ns: int) -> Ages:
        """How long the open request waits for its whole answer, its first byte, its next byte;
        None: it does not, or when that ends is not known."""
        if self.syn_again:
            age = now_ns - self.syn_ns
            return age, age, None
        if not self.open or not self._counts:
            return None, None, None
        age = now_ns - self.asked_ns + max(0, self._connect_ns)
        if self.kind != HTTP:
            first = age if self.kind == TURNS else None
            return (None, None, None) if self._answering else (age, first, None)
        first = None if self._first_ns else age
        if self._in_body and self._end == _OPEN_END:
            return None, first, None
        return age, first, now_ns - self._part_ns if self._part_ns else None


def may_be_http2(hello: bytes) -> bool:
    """Whether a client that begins with these bytes may go on in HTTP/2 within TLS: it offers that
    (ALPN, RFC 7301), or what it offers is not among them. A greeting that offers nothing does not.
    """
    if hello[:1] != b"\x16" or hello[5:6] != b"\x01":
        return True  # it began before it was watched
    try:
        at = 5 + 4 + 2 + 32
        at += 1 + hello[at]
        at += 2 + (hello[at] << 8 | hello[at + 1])
        at += 1 + hello[at]
        end = at + 2 + (hello[at] << 8 | hello[at + 1])
        at += 2
        while at < end:
            kind, length = hello[at : at + 2], hello[at + 2] << 8 | hello[at + 3]
            at += 4 + length
            if kind == b"\x00\x10":
                offered = hello[at - length : at]
                return len(offered) < length or b"\x02h2" in offered
    except IndexError:
        return True
    return at > len(hello)


def _is_sealed(data: bytes) -> bool:
    """Whether a TLS record begins here whose kind is encrypted too, or that is data."""
    return len(data) > 2 and data[0] == 23 and data[1] == 3


def _may_be_farewell(size: int, data: bytes) -> bool:
    return data[:1] == b"\x15" or (size == FAREWELL_BYTES and data[:1] == b"\x17")


def _is_failure(code: int) -> bool:
    return code >= 500 or code in _FAILED


def _length(head: bytes) -> int | None:
    """How many bytes follow this head, _BY_CHUNKS, or _UNKNOWN; None: it does not say."""
    found = _FRAMING.search(head)
    if found is None:
        return None
    if found[1] is None and _FRAMING.search(head, found.end()) is None:
        digits = _DIGITS.match(head, found.end())
        return _UNKNOWN if digits is None else int(digits[1])
    small = head.lower()
    if b"\r\ntransfer-encoding:" in small and _CHUNKED.search(small):
        return _BY_CHUNKS
    return _UNKNOWN


def _path(target: bytes) -> bytes:
    if target[0] != 47:  # a slash
        host, _, rest = target.partition(b"://")[2].partition(b"/")
        target = b"/" + rest if host else target
    return target.partition(b"?")[0]

"""One bounded GET of a page: no redirect, proxy or name lookup, whatever the other side answers."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable
from typing import Any

from dlsched.model.units import shown

ANSWER_S = 2.0
"""Time from connecting to the last byte: a large page of a busy server takes a second."""
PAGE_BYTES = 16 << 20
"""Bytes of the body; it is filtered while it arrives, and never kept."""
HEAD_BYTES = 256 * 1024
"""Bytes of all heads."""
PROBES = (
    r"((/v[0-9]+|/api|/actuator|/-)?/(metrics|health/.*|healthy|live|ready|ping)"
    r"|(/[^/?]+){0,2}/(health(z|_?check)?|(live|ready)z|(live|readi)ness"
    r"|health/(live|ready|liveness|readiness)))/?(\?.*)?"
)
"""Paths that are asked by those who watch a service, not by those who use it."""
_CHUNK_BYTES = 64 * 1024
_SMALLER = "configure the program to publish fewer series"


class Unanswered(Exception):
    """Why there is no page, in one line."""


class OtherStatus(Unanswered):
    """The program answers, but with another status than 200."""


def fetch(
    address: str,
    port: int,
    http_path: str,
    feed: Callable[[bytes], None],
    within_s: float = ANSWER_S,
) -> None:
    """Hand the page's body to `feed`, piece by piece. Raises Unanswered."""
    try:
        _fetch(address, port, http_path, feed, within_s)
    except TimeoutError:
        raise Unanswered(f"the page was not received whole within {within_s:.2g} s") from None
    except OSError as error:
        raise Unanswered(error.strerror or "the connection to the page broke") from None
    except (http.client.HTTPException, ValueError) as error:
        raise Unanswered(f"not HTTP: {shown(str(error) or type(error).__name__)}") from None


class _Bounded(socket.socket):
    """A connection bounded in time and size, whatever the other side does."""

    until_s: float
    bytes_max = HEAD_BYTES
    bytes_left = HEAD_BYTES

    def limit(self) -> None:
        """Set the timeout to the time left until the deadline."""
        left_s = self.until_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        self.settimeout(left_s)

    def recv_into(self, *where: Any, **more: Any) -> int:
        """Used by `http.client` for reading."""
        self.limit()
        count = super().recv_into(*where, **more)
        self.bytes_left -= count
        if self.bytes_left < 0:
            size = f"more than {self.bytes_max >> 10} KiB"
            raise Unanswered(f"the answer has {size}, so it is not read: {_SMALLER}")
        return count


def _fetch(
    address: str, port: int, http_path: str, feed: Callable[[bytes], None], within_s: float
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with _Bounded(family, socket.SOCK_STREAM) as connected:
        connected.until_s = time.monotonic() + within_s
        connected.limit()
        connected.connect((address, port))
        connection = http.client.HTTPConnection(address, port)
        connection.sock = connected
        connected.limit()
        connection.request(
            "GET", http_path, headers={"Accept": "text/plain", "Connection": "close"}
        )
        with connection.getresponse() as response:
            if response.status != http.HTTPStatus.OK:
                raise OtherStatus(f"the page is answered with HTTP status {response.status}")
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding.strip().lower() != "identity":
                raise Unanswered(
                    f"the page has the encoding {shown(encoding)}, which was not asked for"
                )
            connected.bytes_left = connected.bytes_max = PAGE_BYTES
            says_length = response.length is not None or response.chunked
            last = b""
            while chunk := response.read(_CHUNK_BYTES):
                feed(chunk)
                last = chunk[-1:]
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
            if not says_length and last not in (b"", b"\n"):
                raise Unanswered(
                    "the page ends within a line and has no Content-Length, so it may be cut"
                )

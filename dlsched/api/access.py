"""Who may ask what, by the address where it was asked.

Owns the refusals, and the line that each ends in. It must not know what the answers are. An address
is all that is asked of who asks: the kernel let them in, and names them on a unix socket.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_READING = ("GET", "HEAD", "OPTIONS")
_LOOPBACK_NAMES = ("127.0.0.1", "[::1]", "localhost")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, in the words of the socket that the request came by."""

    address: str
    """Where it was asked: a socket's path, or a loopback address."""
    elsewhere: str
    """Where more may be asked, and by whom."""
    may_change: bool = False
    uid: int | None = None
    """Who asks; None: anybody on this host, by TCP."""

    def may_read_logs(self, owner: int | None) -> bool:
        """Whether a job's output, which may hold secrets, is for this caller to read."""
        return self.may_change or (self.uid is not None and self.uid in (0, os.geteuid(), owner))


def caller_of(request: Request) -> Caller:
    """Who asks."""
    caller: Caller = request.state.caller
    return caller


def refusal(caller: Caller, what: str) -> str:
    """The one line that says where to ask instead."""
    return f"{what} is not for {caller.address}: ask on {caller.elsewhere}"


class Gate:
    """ASGI before the routes: changes by the control socket alone, TCP under a loopback name alone.

    A page in a browser can have its own name resolved to this host's address and then read as if
    it were local (DNS rebinding): so a foreign Host is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, or refuse with 403."""
        refused = _refused(scope)
        if refused is None:
            await self._app(scope, receive, send)
        else:
            await JSONResponse({"error": refused}, 403)(scope, receive, send)


def _refused(scope: MutableMapping[str, Any]) -> str | None:
    caller: Caller = scope["state"]["caller"]
    if caller.uid is None and (host := _host(scope)) not in _LOOPBACK_NAMES:
        return f"the Host header names {host[:80]!a}, must be one of {', '.join(_LOOPBACK_NAMES)}"
    if not caller.may_change and scope["method"] not in _READING:
        return refusal(caller, "changing anything")
    return None


def _host(scope: MutableMapping[str, Any]) -> str:
    given: bytes = dict(scope["headers"]).get(b"host", b"")
    host = given.decode("latin-1").lower()
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host

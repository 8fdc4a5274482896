"""Which caller may request what, by the address of the request, and the line of each refusal.

The kernel has let the caller connect; on a unix socket it gives the caller's uid.
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
    """The caller of a request, as its socket identifies it."""

    address: str
    """The address of the request: a socket's path, or a loopback address."""
    elsewhere: str
    """Where other requests are accepted, and from which group."""
    may_change: bool = False
    uid: int | None = None
    """The caller's; None: unknown, by TCP from this host."""

    def may_read_logs(self, owner: int | None) -> bool:
        """Whether this caller may read a job's output, which may hold secrets."""
        return self.may_change or (self.uid is not None and self.uid in (0, os.geteuid(), owner))


def caller_of(request: Request) -> Caller:
    """The caller of the request."""
    caller: Caller = request.state.caller
    return caller


def refusal(caller: Caller, what: str) -> str:
    """One line that says which address accepts the request."""
    return f"{what} is not for {caller.address}: ask on {caller.elsewhere}"


class Gate:
    """ASGI middleware: only the control socket changes anything; TCP needs a loopback host name.

    A page in a browser can resolve its own name to this host's address and read as if it were
    local (DNS rebinding), so any other Host is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with 403."""
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

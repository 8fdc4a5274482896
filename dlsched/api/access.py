"""Which caller may request what, by the address of the request, and the line of each refusal. On a
unix socket, the kernel provides the caller's uid."""

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
    """The address that received the request: a socket's path, or a loopback address."""
    elsewhere: str
    """The address that accepts other requests, and its group."""
    may_change: bool = False
    uid: int | None = None
    """None: unknown, as over TCP."""

    def may_read_logs(self, owner: int | None) -> bool:
        """Whether this caller may read a job's output, which may hold secrets."""
        return self.may_change or (self.uid is not None and self.uid in (0, os.geteuid(), owner))


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def refusal(caller: Caller, what: str) -> str:
    """One line that names the address which accepts the request."""
    return f"{caller.address} is not open for {what}: ask on {caller.elsewhere}"


class Gate:
    """ASGI middleware: only the control socket changes anything; TCP needs a loopback host name, as
    a web page can resolve its own name to this host's address (DNS rebinding) and read as if
    local. On a unix socket a name without a dot will do."""

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
    # A socket that ssh forwards can be reached by such a name too; programs use one without a dot.
    if (caller.uid is None or "." in _host(scope)) and (foreign := foreign_host(scope)) is not None:
        return foreign
    if not caller.may_change and scope["method"] not in _READING:
        return refusal(caller, "changes")
    return None


def foreign_host(scope: MutableMapping[str, Any]) -> str | None:
    """Why the name under which a loopback port was asked is refused; None: it is a loopback name.
    A web page can have a name of its own lead here (DNS rebinding)."""
    host = _host(scope)
    if host in _LOOPBACK_NAMES:
        return None
    return f"the Host header names {host[:80]!a}, must be one of {', '.join(_LOOPBACK_NAMES)}"


def _host(scope: MutableMapping[str, Any]) -> str:
    given: bytes = dict(scope["headers"]).get(b"host", b"")
    host = given.decode("latin-1").lower()
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


async def disconnected(receive: Receive) -> None:
    """Returns when the caller has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass

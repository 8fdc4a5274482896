"""The page of `dlsched web`: a loopback port of the user's own, whose requests go to the daemon's
status socket with the user's rights.

Anybody on the host can connect to a loopback port, so each request needs a cookie. It is given
once, for the token in the fragment of the printed address, which no browser sends. Cookies go to
all ports of a host: this one is for a random path, which a server on another port never sees.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from dlsched.api.access import Caller, disconnected, foreign_host
from dlsched.api.client import SILENT_S
from dlsched.api.server import configured
from dlsched.api.stream import in_time

TOKEN_BYTES = 16
"""128 bits, for the token, the cookie and the path."""

FORWARDED_MAX = 32
"""Limit of requests forwarded at the same time: the daemon has 128 connections for all users."""

CONNECT_S = 10.0
"""Timeout of the connection to the daemon."""

SLOW_S = 10.0
"""A browser that takes nothing for so long is disconnected."""

_BLOCK_BYTES = 1 << 16

_READING = ("GET", "HEAD")

_SENT = (b"accept", b"accept-encoding", b"last-event-id")
"""Headers of a request that the daemon gets."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of each answer, unless the daemon's has the same header."""

_BROKEN = (OSError, h11.ProtocolError)
"""The daemon broke off or was silent, or the browser took nothing."""

_NO_COOKIE = (
    "this page is not open to you: use the address that `dlsched web` printed; it works once"
)
_USED = "this address has been used already, or is wrong: start `dlsched web` again"

_ENTRANCE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>dlsched</title><link rel="icon" href="data:,">
<script src="/enter.js" defer></script></head>
<body><p id="line">{_NO_COOKIE}</p></body></html>
"""

_SCRIPT = """"use strict";
const token = location.hash.slice(1);
const say = (line) => { document.getElementById("line").textContent = line; };
history.replaceState(null, "", "/");
if (token) {
  say("opening");
  fetch("/enter", {method: "POST", headers: {"X-Dlsched-Token": token}})
    .then(async (answer) => {
      const found = await answer.json();
      if (answer.ok) location.replace(found.path);
      else say(found.error);
    })
    .catch(() => say("`dlsched web` does not answer"));
}
"""


class WebProxy:
    """The ASGI application, for one user and one browser."""

    def __init__(self, daemon: Path, port: int) -> None:
        """`daemon` is the socket that is asked; `port` the one that is listened on."""
        self._daemon = daemon
        self._token: str | None = secrets.token_urlsafe(TOKEN_BYTES)
        self._cookie = f"dlsched-{port}"
        self._session = secrets.token_urlsafe(TOKEN_BYTES)
        self._path = f"/{secrets.token_urlsafe(TOKEN_BYTES)}/"
        self._forwarded: set[asyncio.Task[None]] = set()
        self.address = f"http://127.0.0.1:{port}/#{self._token}"

    def end(self) -> None:
        """End every answer that is being sent."""
        for task in self._forwarded:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if (refused := foreign_host(scope)) is not None:
            await _refusal(HTTPStatus.FORBIDDEN, refused)(scope, receive, send)
        elif (response := self._own(scope)) is not None:
            await response(scope, receive, send)
        elif len(self._forwarded) >= FORWARDED_MAX:
            line = f"{FORWARDED_MAX} requests are being answered already: try again later"
            await _refusal(HTTPStatus.SERVICE_UNAVAILABLE, line)(scope, receive, send)
        else:
            await self._forward(scope, receive, send)

    def _own(self, scope: Scope) -> Response | None:
        """The answer to what is not forwarded."""
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        if (method, path) == ("POST", "/enter"):
            return self._enter(headers.get(b"x-dlsched-token", b"").decode("latin-1"))
        if method not in _READING:
            return _refusal(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "this port only shows the status, and takes no changes",
            )
        if path == "/enter.js":
            return Response(_SCRIPT, media_type="text/javascript", headers=_HEADERS)
        if scope["raw_path"].startswith(self._path.encode()) and self._is_known(
            headers.get(b"cookie", b"")
        ):
            return None
        if path == "/":
            return HTMLResponse(_ENTRANCE, HTTPStatus.FORBIDDEN, _HEADERS)
        return _refusal(HTTPStatus.FORBIDDEN, _NO_COOKIE)

    def _enter(self, given: str) -> Response:
        """Exchange the token for the cookie, once."""
        if self._token is None or not _same(given, self._token):
            return _refusal(HTTPStatus.FORBIDDEN, _USED)
        self._token = None
        response = JSONResponse({"path": self._path}, headers=_HEADERS)
        response.set_cookie(
            self._cookie, self._session, path=self._path, httponly=True, samesite="strict"
        )
        return response

    def _is_known(self, cookies: bytes) -> bool:
        # All servers of a host share its cookies, and SimpleCookie finds none if one is malformed.
        own = f"{self._cookie}={self._session}"
        return any(_same(one.strip(), own) for one in cookies.decode("latin-1").split(";"))

    # ------------------------------------------------------------------ forwarding

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward until the answer is complete, the browser has gone, or this program ends."""
        task, abort = asyncio.current_task(), scope["state"]["abort"]
        assert task is not None
        self._forwarded.add(task)
        try:
            response = await self._unless_gone(scope, receive)
            if response is not None:
                await response(scope, receive, in_time(send, SLOW_S, abort))
        except (asyncio.CancelledError, *_BROKEN):
            # The answer has no end: the browser must not take it for complete.
            abort()
        finally:
            self._forwarded.discard(task)

    async def _unless_gone(self, scope: Scope, receive: Receive) -> Response | None:
        """The answer once it begins; None: the browser has gone before."""
        answer = asyncio.ensure_future(self._answer(scope))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            return await answer if answer.done() else None
        finally:
            answer.cancel()
            gone.cancel()

    async def _answer(self, scope: Scope) -> Response:
        """The daemon's answer, whose body is read as it is sent on; or why there is none."""
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(str(self._daemon))
        except OSError as error:
            why = error.strerror or "no answer"
            line = f"no daemon answers on {self._daemon}: {why}"
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, line)
        connection = h11.Connection(h11.CLIENT)
        writer.write(
            (connection.send(self._request(scope)) or b"")
            + (connection.send(h11.EndOfMessage()) or b"")
        )
        events = _events(connection, reader, writer)
        try:
            return _Forwarded(await anext(events), events)
        except (StopAsyncIteration, *_BROKEN):
            writer.close()
            line = f"the daemon on {self._daemon} does not answer"
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, line)

    def _request(self, scope: Scope) -> h11.Request:
        target = b"/" + scope["raw_path"][len(self._path) :]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = [(b"host", b"dlsched"), (b"connection", b"close")]
        headers += [one for one in scope["headers"] if one[0] in _SENT]
        return h11.Request(method=scope["method"], target=target, headers=headers)


async def _events(
    connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncGenerator[h11.Response | h11.Data]:
    """The head and the body's parts as they come. Raises OSError or ProtocolError if the daemon
    breaks off, TimeoutError if it is silent."""
    with closing(writer):
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(SILENT_S):
                    connection.receive_data(await reader.read(_BLOCK_BYTES))
            elif isinstance(event, h11.Response | h11.Data):
                yield event
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise h11.RemoteProtocolError("the daemon's connection ended before its answer")


class _Forwarded(StreamingResponse):
    """An answer of the daemon, with the headers that it lacks."""

    def __init__(self, head: Any, events: AsyncGenerator[Any]) -> None:
        super().__init__((bytes(event.data) async for event in events), head.status_code)
        self._events = events
        self.raw_headers = [one for one in head.headers.raw_items() if _belongs(one[0])]
        for name, value in _HEADERS.items():
            self.headers.setdefault(name, value)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


def _belongs(header: bytes) -> bool:
    """Whether a header of an answer is of more than its connection."""
    return header.lower() not in (b"connection", b"date", b"keep-alive", b"transfer-encoding")


def _refusal(status: HTTPStatus, line: str) -> Response:
    return JSONResponse({"error": line}, status, headers=_HEADERS)


def _same(given: str, right: str) -> bool:
    return secrets.compare_digest(given.encode(), right.encode())


class WebServer(uvicorn.Server):
    """The server of a WebProxy, ended by `end` alone: signals are its caller's."""

    def __init__(self, proxy: WebProxy, listening: socket.socket) -> None:
        caller = Caller(":".join(map(str, listening.getsockname())), "")
        super().__init__(configured(proxy, lambda _connection: caller))
        self._proxy, self._listening = proxy, listening

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's would raise a signal again at the end, before files are removed."""
        yield

    async def answer(self) -> None:
        """Answer until `end`."""
        await self.serve(sockets=[self._listening])

    def end(self) -> None:
        """End, with every answer that is being sent."""
        self.should_exit = True
        self._proxy.end()

"""The thread that answers the API on all addresses. One thread serves all requests, so that no
caller can delay a cycle. Connections are limited in number and time."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import struct
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dlsched.api.access import Caller
from dlsched.api.routes import build_app
from dlsched.api.schema import CONTROL_SOCKET_NAME, STATUS_SOCKET_NAME
from dlsched.api.sockets import UnixSocket, open_tcp
from dlsched.api.source import StatusSource
from dlsched.model.units import render_address

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 128
"""Limit at each address. Each connection takes a descriptor, even without a request."""

ASK_WITHIN_S = 10.0
"""A connection without a request, or whose caller takes nothing of an answer, for this long is
closed."""

_UCRED = struct.Struct("iII")
"""pid, uid and gid of a unix socket's peer, from the kernel."""


class CountedCaller(Protocol):
    """The caller of a connection."""

    @property
    def address(self) -> str:
        """Connections with the same one are counted together."""


class HttpProtocol(H11Protocol):
    """HTTP that identifies the caller, and closes idle or surplus connections."""

    def __init__(
        self,
        caller: Callable[[asyncio.Transport], CountedCaller],
        connections_max: int,
        *args: Any,
        **more: Any,
    ) -> None:
        """`caller` identifies the caller of a connection; the limit is of each address."""
        super().__init__(*args, **more)
        self._caller, self._connections_max = caller, connections_max
        self._patience: asyncio.TimerHandle | None = None
        self._unsent_bytes = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        caller = self._caller(transport)
        self.app_state = {"caller": caller, "abort": transport.abort}
        # Counted by address, so that many callers at one do not close another.
        beside = [cast(HttpProtocol, one).app_state["caller"].address for one in self.connections]
        if beside.count(caller.address) > self._connections_max:
            transport.abort()
        else:
            self._be_patient()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # Else many short connections would each stay in memory until their timer ends.
        if self._patience is not None:
            self._patience.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; in the middle of an answer, only close."""
        if self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
            return
        # The unfinished answer then has no caller, and logs nothing.
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Half of a next request, or of this one's body, would end the server's own patience.
        self._be_patient()

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._unsent_bytes = math.inf
        self._patience = self.loop.call_later(ASK_WITHIN_S, self._hang_up)

    def _hang_up(self) -> None:
        """Close it, unless a request is being answered or its caller takes an answer."""
        unsent = self.transport.get_write_buffer_size()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or not unsent:
                self._be_patient()
                return
        elif not unsent:
            self.transport.close()
            return
        # Only complete answers are unsent. Closing would wait until they are taken.
        if unsent >= self._unsent_bytes:
            self.transport.abort()
        else:
            self._patience = self.loop.call_later(ASK_WITHIN_S, self._hang_up)
            self._unsent_bytes = unsent


def configured(
    app: ASGIApp,
    caller: Callable[[asyncio.Transport], CountedCaller],
    connections_max: int = CONNECTIONS_MAX,
) -> uvicorn.Config:
    """A server of that application; `caller` identifies the caller of a connection, and the limit
    is of each address."""
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=cast("type[asyncio.Protocol]", partial(HttpProtocol, caller, connections_max)),
        ws="none",
        lifespan="off",
        log_config=None,
        # Malformed requests are logged below that level, so that they cannot fill a disk.
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


class ApiServer:
    """The API in `run_dir`: reading on `status.sock`, changing too on `control.sock`."""

    def __init__(
        self,
        source: StatusSource,
        run_dir: Path,
        status_group: str | None = None,
        control_group: str | None = None,
        listen: tuple[str, int] | None = None,
    ) -> None:
        """A group may connect besides this user; None: only this user. `listen`: a loopback address
        and port, also for reading."""
        self._status = UnixSocket(run_dir / STATUS_SOCKET_NAME, status_group)
        self._control = UnixSocket(run_dir / CONTROL_SOCKET_NAME, control_group)
        self._listen = listen
        self._sockets: list[socket.socket] = []
        whom = "root alone" if control_group is None else f"group {control_group}"
        self._elsewhere = f"{self.control_path} ({whom})"
        config = configured(build_app(source), self._caller)
        self._server = uvicorn.Server(config)
        self._stream = source.stream
        self.problem: str | None = None
        """Why the API does not answer, in one line; None: it answers."""
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)

    @property
    def status_path(self) -> Path:
        return self._status.path

    @property
    def control_path(self) -> Path:
        return self._control.path

    def start(self) -> None:
        """Start answering. Raises AlreadyRunning if another daemon answers there, SocketUnusable if
        a socket cannot be created."""
        try:
            for one in (self._status, self._control):
                self._sockets.append(one.open())
            if self._listen is not None:
                self._sockets.append(open_tcp(*self._listen))
        except BaseException:
            self._close()
            raise
        self._thread.start()

    def stop(self) -> None:
        """Stop answering; takes about a second while a log is followed."""
        # In this order: a server that ends breaks off, after a second, what is still being sent.
        self._stream.end()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self._close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._answer())
        except Exception:  # jobs go on without ps; the loop must not notice
            log.exception(
                "the API has ended; ps, why and stop do not work until dlsched is restarted"
            )
            self.problem = "the API has ended; ps, why and stop do not work: restart dlsched"

    async def _answer(self) -> None:
        self._stream.attach()
        await self._server.serve(sockets=self._sockets)

    def _close(self) -> None:
        self._status.close()
        self._control.close()
        for one in self._sockets:
            one.close()
        self._sockets = []

    def _caller(self, transport: asyncio.Transport) -> Caller:
        connection: socket.socket = transport.get_extra_info("socket")
        address = connection.getsockname()
        if not isinstance(address, str):
            return Caller(render_address(*address[:2]), self._elsewhere)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        _, uid, _ = _UCRED.unpack(credentials)
        changes = address == str(self.control_path)
        return Caller(address, self._elsewhere, may_change=changes, uid=uid)

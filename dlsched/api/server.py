"""The API's socket and the thread that answers on it.

Owns the socket's place, rights and end. It must not know what is asked: `routes` does. One thread
serves all requests, so that nobody who asks can delay a cycle.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import socket
import stat
import threading
from pathlib import Path
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dlsched.api.routes import StatusSource, build_app
from dlsched.errors import AlreadyRunning, DlschedError
from dlsched.status import SOCKET_NAME

log = logging.getLogger(__name__)

SOCKET_PATH_MAX = 107
"""Bytes in the path of a unix socket: the kernel's field holds 108 with its closing zero."""


CONNECTIONS_MAX = 128
"""Each holds one of the daemon's descriptors, also when it asks nothing."""

ASK_WITHIN_S = 10.0
"""A connection that asks nothing for so long is closed."""


class _Protocol(H11Protocol):
    """HTTP that hangs up on who asks nothing, and on too many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self.loop.call_later(ASK_WITHIN_S, self._hang_up)

    def _hang_up(self) -> None:
        if cast("object | None", self.cycle) is None:  # nothing was asked yet
            self.transport.close()


class SocketUnusable(DlschedError):
    """The API's socket cannot be made where the settings want it."""


class ApiServer:
    """The API on `<run_dir>/dlsched.sock`, mode 0660, served by a thread."""

    def __init__(self, source: StatusSource, run_dir: Path, group: str | None) -> None:
        """`group` may ask beside this user; None: nobody else may."""
        self.path = run_dir / SOCKET_NAME
        self._group = group
        self._socket: socket.socket | None = None
        self._inode: int | None = None
        self._server = uvicorn.Server(
            uvicorn.Config(
                build_app(source),
                loop="asyncio",
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)

    def start(self) -> None:
        """Answer from now on.

        Raises AlreadyRunning where somebody answers on that socket already, SocketUnusable where
        it cannot be made.
        """
        if len(os.fsencode(self.path)) > SOCKET_PATH_MAX:
            raise SocketUnusable(
                f"run directory: {self.path} is too long for a socket: "
                f"{len(os.fsencode(self.path))} bytes, at most {SOCKET_PATH_MAX}"
            )
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _clear(self.path)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.bind(str(self.path))
            self._inode = self.path.lstat().st_ino
            # Nobody can connect before listen(), so nobody slips in under the first mode.
            _open_to(self._group, self.path)
            self._socket.listen(128)
        except OSError as error:
            self._close()
            raise SocketUnusable(f"{self.path}: {error.strerror or error}") from error
        self._thread.start()

    def stop(self) -> None:
        """Answer no more; takes about a second where somebody follows a log."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        self._close()

    def _serve(self) -> None:
        assert self._socket is not None
        try:
            self._server.run(sockets=[self._socket])
        except Exception:  # jobs go on without ps; the loop must not notice
            log.exception("the API has ended: ps, why and stop do not answer until a restart")

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        with contextlib.suppress(OSError):
            if self._inode is not None and self.path.lstat().st_ino == self._inode:
                self.path.unlink()


def _clear(path: Path) -> None:
    """Remove a socket that a daemon left when it was killed, and nothing else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketUnusable(f"{path} is there and is no socket: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            pass  # somebody listens, and is busy
    raise AlreadyRunning(f"another daemon answers on {path}")


def _open_to(group: str | None, path: Path) -> None:
    if group is None:
        path.chmod(0o600)
        return
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        log.warning("no group %s: %s is for root alone (groupadd --system %s)", group, path, group)
        gid = 0
    try:
        os.chown(path, -1, gid)
    except PermissionError:
        log.warning("%s is for this user alone: it may not be given to group %s", path, group)
        path.chmod(0o600)
    else:
        path.chmod(0o660)

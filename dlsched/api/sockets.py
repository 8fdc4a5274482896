"""The API's addresses: two unix sockets and, if configured, a loopback port."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import socket
import stat
from pathlib import Path

from dlsched.model.errors import AlreadyRunning, DlschedError
from dlsched.model.units import render_address

log = logging.getLogger(__name__)

SOCKET_PATH_MAX = 107
"""Maximum bytes of a unix socket's path: the kernel's field has 108, with a final zero."""

_BACKLOG = 128


class SocketUnusable(DlschedError):
    """The API cannot listen on a configured address."""


class UnixSocket:
    """One listening unix socket, mode 0660 under its group."""

    def __init__(self, path: Path, group: str | None) -> None:
        """`group` may connect besides this user; None: only this user."""
        self.path = path
        self._group = group
        self._inode: int | None = None
        self._socket: socket.socket | None = None

    def open(self) -> socket.socket:
        """Listen. Raises AlreadyRunning if another daemon does, or SocketUnusable."""
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
            # No process can connect before listen(), so the first mode lets none in.
            _open_to(self._group, self.path)
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self.close()
            raise SocketUnusable(f"{self.path}: {error.strerror or error}") from error
        return self._socket

    def close(self) -> None:
        """Stop listening, and remove the socket file unless it is a successor's."""
        if self._socket is not None:
            self._socket.close()
        with contextlib.suppress(OSError):
            if self._inode is not None and self.path.lstat().st_ino == self._inode:
                self.path.unlink()


def open_tcp(address: str, port: int) -> socket.socket:
    """A listening TCP socket of that address. Raises SocketUnusable."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sends small blocks without delay only where the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        why = error.strerror or error
        raise SocketUnusable(f"listen: {render_address(address, port)}: {why}") from error
    return listening


def _clear(path: Path) -> None:
    """Remove the socket of a killed daemon, and only that."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketUnusable(f"{path} is not a socket: move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            pass  # another daemon listens, and is busy
    raise AlreadyRunning(f"another daemon answers on {path}")


def _open_to(group: str | None, path: Path) -> None:
    if group is None:
        path.chmod(0o600)
        return
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        if os.geteuid() == 0:
            how = f"groupadd --system {group}"
            log.warning(
                "there is no group %s, so %s is for root alone: `%s` creates the group",
                group,
                path,
                how,
            )
        gid = 0
    try:
        os.chown(path, -1, gid)
    except PermissionError:
        log.warning(
            "only this user may connect to %s: this user cannot give it to group %s", path, group
        )
        path.chmod(0o600)
    else:
        path.chmod(0o660)

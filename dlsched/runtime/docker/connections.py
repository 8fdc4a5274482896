"""Connections to an engine's unix socket: one pool for all calls, and none that is forgotten.

docker-py keeps a pool for each URL, so an idle connection for each container that was ever asked
for, up to 25; and the socket of a refused connection is in a reference cycle with its error, thus
open until the cyclic garbage collector runs. While an engine is away that makes hundreds.
"""

from __future__ import annotations

import socket
from typing import Any

import docker
from docker.transport.unixconn import (
    UnixHTTPAdapter,
    UnixHTTPConnection,
    UnixHTTPConnectionPool,
)
from requests.adapters import BaseAdapter

KEPT_CONNECTIONS = 10
"""So many idle connections are kept; more calls than that at a time make new ones."""


class Client(docker.APIClient):
    """docker-py's client, whose calls to a unix socket share a pool."""

    def mount(self, prefix: str | bytes, adapter: BaseAdapter) -> None:
        """The transport for addresses that begin like this; here a unix socket's is replaced."""
        if isinstance(adapter, UnixHTTPAdapter):
            adapter = _Adapter(
                f"http+unix://{adapter.socket_path}",
                adapter.timeout,
                pool_connections=1,
                max_pool_size=KEPT_CONNECTIONS,
            )
        super().mount(prefix, adapter)


class _Adapter(UnixHTTPAdapter):
    """Has one pool."""

    def get_connection(self, url: str | bytes, proxies: object = None) -> _Pool:  # noqa: ARG002
        """The pool, for whatever URL."""
        with self.pools.lock:
            pool: _Pool | None = self.pools.get(self.socket_path)
            if pool is None:
                pool = _Pool(self.socket_path, self.socket_path, self.timeout, self.max_pool_size)
                self.pools[self.socket_path] = pool
        return pool


class _Pool(UnixHTTPConnectionPool):
    """Makes connections that close what they cannot use."""

    def _new_conn(self) -> _Connection:  # type: ignore[override]
        # The stubs want whole seconds; docker-py hands it to the socket, which takes fractions.
        limit: Any = self.timeout
        return _Connection(self.base_url, self.socket_path, limit)


class _Connection(UnixHTTPConnection):
    """One connection."""

    def connect(self) -> None:
        """Connect; a socket that is refused is closed."""
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            opened.settimeout(self.timeout)
            opened.connect(self.unix_socket)
        except BaseException:
            opened.close()
            raise
        self.sock = opened

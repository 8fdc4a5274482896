"""A unix socket in front of a Docker Engine that can hang, or go away, at the test's word."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path


class EngineProxy:
    """Passes everything on to the engine, unless it is told to hang or to be down."""

    def __init__(self, engine: str, path: Path) -> None:
        self._engine = engine.removeprefix("unix://")
        self._path = path
        self._flows = threading.Event()
        self._flows.set()
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.up()

    @property
    def host(self) -> str:
        return f"unix://{self._path}"

    def hang(self) -> None:
        """Take connections and bytes, and answer nothing."""
        self._flows.clear()

    def resume(self) -> None:
        """Pass on what was held back."""
        self._flows.set()

    def down(self) -> None:
        """End all connections, and take no more."""
        if self._listener is not None:
            self._path.unlink()
            # Closing alone would leave the thread in accept().
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for one in list(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def up(self) -> None:
        """Take connections (again)."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        self.resume()
        self.down()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        engine.connect(self._engine)
        self._sockets |= {client, engine}
        other = threading.Thread(target=self._pass_on, args=(engine, client), daemon=True)
        other.start()
        self._pass_on(client, engine)
        other.join()
        self._sockets -= {client, engine}
        client.close()
        engine.close()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                self._flows.wait()
                target.sendall(chunk)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

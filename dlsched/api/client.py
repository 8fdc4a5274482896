"""What the command line asks the daemon, over its unix sockets.

Owns the requests, which socket each goes to, and the one-line errors when no daemon answers. It
imports little, since `ps` spends most of its time on imports: an HTTP client of the standard
library or another one takes longer than all the rest.
"""

from __future__ import annotations

import grp
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import h11

from dlsched.api.reading import read
from dlsched.api.schema import CONTROL_SOCKET_NAME, STATUS_SOCKET_NAME, Explanation, Status
from dlsched.model.errors import DaemonUnavailable, DlschedError

RELEASE_S = 90.0
"""The daemon waits for the engine before it says what became of each container."""

ANSWER_S = 10.0
"""How long an answer may take; a log that is followed may be silent for ever."""

_CHUNK_BYTES = 1 << 16


class Refused(DlschedError):
    """The daemon refused the request, such as one for an unknown job."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


class Daemon:
    """The daemon of one run directory. Every method raises DaemonUnavailable or Refused."""

    def __init__(self, run_dir: Path) -> None:
        self._status = _Endpoint(run_dir / STATUS_SOCKET_NAME)
        self._control = _Endpoint(run_dir / CONTROL_SOCKET_NAME)

    def about(self) -> dict[str, Any]:
        """Version, instance, policy, dry_run, watch folder, pid."""
        return self._reading.ask("GET", "/v1/about")

    def status(self) -> Status:
        """`jobs` as the types of the schema; raises SchemaMismatch."""
        return read(Status, self.jobs())

    def explain(self, job: str, limit: int) -> Explanation:
        """`why` as the types of the schema; raises SchemaMismatch."""
        return read(Explanation, self.why(job, limit))

    def jobs(self) -> dict[str, Any]:
        """The node, the engine, every job and every rejected file: the JSON as it came."""
        return self._reading.ask("GET", "/v1/jobs")

    def why(self, job: str, limit: int) -> dict[str, Any]:
        """The job's row, its last changes, and the last cycle's outcome: the JSON as it came."""
        return self._reading.ask("GET", f"{_path(job, 'why')}?limit={limit}")

    def stop(self, job: str) -> None:
        """Ask that the job be stopped, and stay stopped."""
        self._control.ask("POST", _path(job, "stop"))

    def start(self, job: str) -> None:
        """Lift a recorded stop."""
        self._control.ask("POST", _path(job, "start"))

    def release(self) -> dict[str, Any]:
        """Have all limits given back; what became of each container."""
        return self._control.ask("POST", "/v1/release", read_s=RELEASE_S)

    def resume(self) -> None:
        """Let the daemon set limits again."""
        self._control.ask("POST", "/v1/resume")

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output as it comes; with `follow` until the container ends.

        Over the control socket where that is open to us: it may read every job's.
        """
        line = self._control if self._control.is_open else self._status
        path = f"{_path(job, 'logs')}?tail={tail}&follow={int(follow)}"
        yield from line.stream("GET", path, read_s=None if follow else ANSWER_S)

    @property
    def _reading(self) -> _Endpoint:
        """The status socket, unless only the control socket is open to us."""
        if not self._status.is_open and self._control.is_open:
            return self._control
        return self._status


class _Endpoint:
    """One socket of the daemon, a connection for each request, and the errors."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_open(self) -> bool:
        """Whether this process may connect to it."""
        return os.access(self.path, os.W_OK, effective_ids=True)

    def ask(self, method: str, path: str, read_s: float = ANSWER_S) -> dict[str, Any]:
        """The answer's JSON, each part of which may take `read_s`."""
        content = b"".join(self.stream(method, path, read_s))
        try:
            return cast("dict[str, Any]", json.loads(content))
        except ValueError as error:
            raise DaemonUnavailable(f"{self.path} does not answer in JSON: {error}") from error

    def stream(self, method: str, path: str, read_s: float | None) -> Iterator[bytes]:
        """The answer in parts; each may take `read_s`, None: for ever."""
        with self._reaching(), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S)
            connection.connect(str(self.path))
            exchange = h11.Connection(h11.CLIENT)
            headers = [("Host", "dlsched"), ("Connection", "close")]
            if method == "POST":
                headers.append(("Content-Length", "0"))
            request = h11.Request(method=method, target=path, headers=headers)
            # In one piece: the daemon may answer and hang up before a second one is sent.
            connection.sendall(
                (exchange.send(request) or b"") + (exchange.send(h11.EndOfMessage()) or b"")
            )
            connection.settimeout(read_s)
            yield from _body(exchange, connection)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise DaemonUnavailable(f"the daemon on {self.path} does not answer") from error
        except PermissionError as error:
            line = f"{self.path} is not open to you: {_remedy(self.path)}"
            raise DaemonUnavailable(line) from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            line = f"no daemon answers on {self.path}; start it with `dlsched run`"
            raise DaemonUnavailable(line) from error
        except (OSError, h11.RemoteProtocolError) as error:
            line = f"the daemon on {self.path} closed the connection: {error}"
            raise DaemonUnavailable(line) from error


def _body(exchange: h11.Connection, connection: socket.socket) -> Iterator[bytes]:
    """The answer's body in parts; raises Refused where the daemon refused."""
    status, refusal = 0, b""
    while True:
        event = exchange.next_event()
        if event is h11.NEED_DATA:
            exchange.receive_data(connection.recv(_CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            if status < 400:
                yield bytes(event.data)
            else:
                refusal += event.data
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            break
    if status >= 400:
        raise _refusal(status, refusal)


def _remedy(path: Path) -> str:
    """How to be let in, by the socket file's group and mode."""
    try:
        status = path.stat()
        group = grp.getgrgid(status.st_gid).gr_name
    except (OSError, KeyError):
        return "use sudo"
    if not status.st_mode & 0o020 or status.st_gid == 0:
        return "it is its owner's alone, so use sudo"
    return f"join group {group} (usermod -aG {group} USER, then log in again), or use sudo"


def _path(job: str, what: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}/{what}"


def _refusal(status: int, content: bytes) -> Refused:
    try:
        text = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        text = f"the daemon answered {status}"
    return Refused(status, text)

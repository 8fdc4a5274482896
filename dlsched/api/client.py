"""The command line's client of the daemon, over its unix sockets.

It speaks HTTP itself: `ps` spends most of its time on imports, and those of an HTTP client, even
the standard library's, take a third of what it may take in all.
"""

from __future__ import annotations

import grp
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from dlsched.api.codec import read
from dlsched.api.schema import CONTROL_SOCKET_NAME, STATUS_SOCKET_NAME, Status
from dlsched.api.why_schema import Explanation
from dlsched.model.errors import DaemonUnavailable, NotNow, Refused

RELEASE_S = 90.0
"""The daemon waits for the engine before it reports on each container."""

ANSWER_S = 10.0
"""Timeout of an answer. A log that is followed may be silent forever."""

HISTORY_S = 40.0
"""Timeout of a range of the journal: the daemon gives up reading it after 30 s."""

SILENT_S = 45.0
"""Timeout of the stream, which sends at least a comment every 15 seconds."""

_NOT_NOW = 503
"""HTTP's Service Unavailable."""

_LINE_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20


class StreamMessage(NamedTuple):
    """One message of `/v1/stream`; the first of each stream is empty."""

    id: str
    """Empty: it has none."""
    kind: str
    data: str
    """JSON."""


class Daemon:
    """The daemon of one run directory. Every method raises DaemonUnavailable or Refused."""

    def __init__(self, run_dir: Path) -> None:
        self._status = _Endpoint(run_dir / STATUS_SOCKET_NAME)
        self._control = _Endpoint(run_dir / CONTROL_SOCKET_NAME)

    def about(self) -> dict[str, Any]:
        """Version, instance, policy, dry_run, watch folder, pid."""
        return self._reading.ask("GET", "/v1/about")

    def status(self) -> Status:
        """`jobs`, parsed; raises SchemaMismatch."""
        return read(Status, self.jobs())

    def explain(self, job: str, limit: int) -> Explanation:
        """`why`, parsed; raises SchemaMismatch."""
        return read(Explanation, self.why(job, limit))

    def jobs(self, read_s: float = ANSWER_S) -> dict[str, Any]:
        """Node, engine, jobs and rejected files, as JSON."""
        return self._reading.ask("GET", "/v1/jobs", read_s)

    def why(self, job: str, limit: int) -> dict[str, Any]:
        """The job's row, its last changes, and the last cycle's outcome, as JSON."""
        return self._reading.ask("GET", f"{_path(job, 'why')}?limit={limit}")

    def usage(self, since_s: float, by: str) -> dict[str, Any]:
        """Who used the CPU in the last `since_s`, by user or job, as JSON."""
        return self._reading.ask("GET", f"/v1/usage?since={since_s:.0f}&by={by}", HISTORY_S)

    def stop(self, job: str) -> None:
        """Request that the job is stopped, and stays stopped."""
        self._control.ask("POST", _path(job, "stop"))

    def start(self, job: str) -> None:
        """Remove the record of a stop or an end, so that the job may start."""
        self._control.ask("POST", _path(job, "start"))

    def release(self) -> dict[str, Any]:
        """Request that all limits are given back; returns the result for each container."""
        return self._control.ask("POST", "/v1/release", read_s=RELEASE_S)

    def resume(self) -> None:
        """Request that the daemon sets limits again."""
        self._control.ask("POST", "/v1/resume")

    def adopt(self, container: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """Request that a running container is adopted as these labels ask."""
        path = f"/v1/containers/{_quoted(container)}/adopt"
        return self._control.ask("POST", path, RELEASE_S, {"labels": dict(labels)})

    def drop(self, container: str) -> dict[str, Any]:
        """Request that an adopted container is let go; the result of giving its limits back."""
        return self._control.ask("POST", f"/v1/containers/{_quoted(container)}/drop", RELEASE_S)

    def containers(self) -> dict[str, Any]:
        """The containers that are `adopted`, and the `others` that run and no instance manages."""
        return self._control.ask("GET", "/v1/containers", RELEASE_S)

    def adopted_labels(self, container: str) -> dict[str, str]:
        answer = self._reading.ask("GET", f"/v1/containers/{_quoted(container)}/labels")
        return dict(answer["labels"])

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output as it is written; with `follow` until the container ends. Uses the
        control socket if this process may, as that serves every job's output."""
        line = self._control if self._control.is_open else self._status
        path = f"{_path(job, 'logs')}?tail={tail}&follow={int(follow)}"
        yield from line.stream("GET", path, read_s=None if follow else ANSWER_S)

    def cycle_events(self, last_id: str, follow: bool) -> Iterator[StreamMessage]:
        """What happened in each cycle after the message of that id, or in all that are kept; with
        `follow` until the daemon ends."""
        yield from self._messages(f"/v1/stream?only=events&follow={int(follow)}", last_id)

    def cycles(self, last_id: str) -> Iterator[StreamMessage]:
        """Every message after that of that id, or all that are kept, until the daemon ends."""
        yield from self._messages("/v1/stream", last_id)

    def _messages(self, path: str, last_id: str) -> Iterator[StreamMessage]:
        """Server-Sent Events; comments are left out."""
        headers, held = f"Last-Event-ID: {last_id}\r\n" if last_id else "", b""
        for part in self._reading.stream("GET", path, SILENT_S, headers=headers):
            *blocks, held = (held + part).split(b"\n\n")
            for block in blocks:
                lines = [one.partition(": ") for one in block.decode(errors="replace").split("\n")]
                found = {name: value for name, _, value in lines if not name.startswith(":")}
                if found:
                    yield StreamMessage(*(found.get(one, "") for one in ("id", "event", "data")))

    @property
    def reading_path(self) -> Path:
        """The socket that is asked where nothing is changed."""
        return self._reading.path

    @property
    def _reading(self) -> _Endpoint:
        """The status socket, or the control socket if only that is open to this process."""
        if not self._status.is_open and self._control.is_open:
            return self._control
        return self._status


class _Endpoint:
    """One of the daemon's sockets, with a new connection for each request."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_open(self) -> bool:
        """Whether this process may connect to it."""
        return os.access(self.path, os.W_OK, effective_ids=True)

    def ask(
        self,
        method: str,
        path: str,
        read_s: float = ANSWER_S,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The answer's JSON. `read_s` is the timeout of each part; `body` is sent as JSON."""
        sent = b"" if body is None else json.dumps(body).encode()
        content = b"".join(self.stream(method, path, read_s, sent))
        try:
            found: dict[str, Any] = json.loads(content)
        except ValueError as error:
            raise DaemonUnavailable(f"{self.path} does not answer in JSON: {error}") from error
        return found

    def stream(
        self, method: str, path: str, read_s: float | None, sent: bytes = b"", headers: str = ""
    ) -> Iterator[bytes]:
        """The answer in parts, each with a timeout of `read_s`; None: no timeout. `headers` are
        more of the request's, each with its line's end."""
        if method == "POST":
            headers += f"Content-Length: {len(sent)}\r\n"
        request = f"{method} {path} HTTP/1.1\r\nHost: dlsched\r\nConnection: close\r\n{headers}\r\n"
        with self._reaching(), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(min(ANSWER_S, read_s or ANSWER_S))
            connection.connect(str(self.path))
            connection.sendall(request.encode() + sent)
            connection.settimeout(read_s)
            with connection.makefile("rb") as answer:
                status, answered = _head(answer)
                body = _body(answer, answered)
                if status >= 400:
                    raise _refusal(status, b"".join(body))
                yield from body

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise DaemonUnavailable(f"the daemon on {self.path} does not answer") from error
        except PermissionError as error:
            raise DaemonUnavailable(
                f"{self.path} is not open to you: {_remedy(self.path)}"
            ) from error
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise DaemonUnavailable(
                f"no daemon answers on {self.path}; start it with `systemctl start "
                "dlsched` or `dlsched run`"
            ) from error
        except (OSError, ValueError) as error:
            raise DaemonUnavailable(
                f"the daemon on {self.path} closed the connection: {error}"
            ) from error


class _NoHttp(ValueError):
    """The answer is not HTTP, or ends too early."""


def _head(answer: BinaryIO) -> tuple[int, dict[str, str]]:
    parts = _line(answer).split(" ")
    if not parts[0].startswith("HTTP/1.") or not parts[1:2] or not parts[1].isdigit():
        raise _NoHttp("the answer is not HTTP")
    headers = {}
    while line := _line(answer):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return int(parts[1]), headers


def _body(answer: BinaryIO, headers: dict[str, str]) -> Iterator[bytes]:
    """The body in parts: chunked, or of the length in its header."""
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        yield _exactly(answer, int(headers.get("content-length", "0")))
        return
    while size := int(_line(answer).partition(";")[0], 16):
        yield _exactly(answer, size)
        _line(answer)


def _line(answer: BinaryIO) -> str:
    line = answer.readline(_LINE_BYTES)
    if not line.endswith(b"\r\n"):
        raise _NoHttp("the answer ends too early")
    return line[:-2].decode("latin-1")


def _exactly(answer: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0:
        parts.append(answer.read(min(size, _BLOCK_BYTES)))
        if not parts[-1]:
            raise _NoHttp("the answer ends too early")
        size -= len(parts[-1])
    return b"".join(parts)


def _remedy(path: Path) -> str:
    """How to get access, by the socket file's group and mode."""
    try:
        status = path.stat()
        group = grp.getgrgid(status.st_gid).gr_name
    except (OSError, KeyError):
        return "use sudo"
    if not status.st_mode & 0o020 or status.st_gid == 0:
        return "only the socket's owner may connect, so use sudo"
    return f"join group {group} (usermod -aG {group} USER, then log in again), or use sudo"


def _path(job: str, what: str) -> str:
    return f"/v1/jobs/{_quoted(job)}/{what}"


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _refusal(status: int, content: bytes) -> Refused:
    try:
        text = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        text = f"the daemon answered {status}"
    return NotNow(status, text) if status == _NOT_NOW else Refused(status, text)

"""What the command line asks the daemon, over its unix sockets.

Owns the requests, which socket each goes to, and the one-line errors when nobody answers. It must
not print, nor be imported by the daemon: an HTTP client has no place in its memory.
"""

from __future__ import annotations

import grp
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import httpx2

from dlsched.api.status import CONTROL_SOCKET_NAME, STATUS_SOCKET_NAME
from dlsched.model.errors import DaemonUnavailable, DlschedError

RELEASE_S = 90.0
"""The daemon waits for the engine before it says what became of each container."""

ANSWER_S = 10.0
"""So long an answer may take; a log that is followed may be silent for ever."""


class Refused(DlschedError):
    """The daemon answered, but not with what was asked: an unknown job, for one."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


class Daemon:
    """The daemon of one run directory. Every method raises DaemonUnavailable or Refused.

    Answers are the JSON of `dlsched.api.status`, as it came.
    """

    def __init__(self, run_dir: Path) -> None:
        self._status = _Line(run_dir / STATUS_SOCKET_NAME)
        self._control = _Line(run_dir / CONTROL_SOCKET_NAME)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.close()
        self._control.close()

    def about(self) -> dict[str, Any]:
        """Version, instance, policy, dry_run, watch folder, pid."""
        return self._reading.ask("GET", "/v1/about")

    def jobs(self) -> dict[str, Any]:
        """The node, the engine, every job and every rejected file."""
        return self._reading.ask("GET", "/v1/jobs")

    def why(self, job: str, limit: int) -> dict[str, Any]:
        """The job's row, its last changes, and what the last cycle made of it."""
        return self._reading.ask("GET", _path(job, "why"), {"limit": limit})

    def stop(self, job: str) -> None:
        """Ask that the job be stopped, and stay so."""
        self._control.ask("POST", _path(job, "stop"))

    def start(self, job: str) -> None:
        """Lift a recorded stop."""
        self._control.ask("POST", _path(job, "start"))

    def release(self) -> dict[str, Any]:
        """What became of each container when everything was given back."""
        return self._control.ask("POST", "/v1/release", read_s=RELEASE_S)

    def resume(self) -> None:
        """Let it work again."""
        self._control.ask("POST", "/v1/resume")

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output as it comes; with `follow` until the container ends.

        Over the control socket where that is open to us: it may read every job's.
        """
        line = self._control if self._control.is_open else self._status
        query = {"tail": tail, "follow": int(follow)}
        yield from line.stream(_path(job, "logs"), query, read_s=None if follow else ANSWER_S)

    @property
    def _reading(self) -> _Line:
        """The status socket, unless only the control socket is open to us."""
        if not self._status.is_open and self._control.is_open:
            return self._control
        return self._status


class _Line:
    """One socket, and what is said when nobody answers there."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._opened = ExitStack()

    @cached_property
    def http(self) -> httpx2.Client:
        """Made when it is first asked: most commands need one of the two."""
        client = httpx2.Client(
            # A local socket has no certificate; loading those of the world takes 25 ms of CPU.
            transport=httpx2.HTTPTransport(uds=str(self.socket), verify=False),
            base_url="http://dlsched",
            timeout=ANSWER_S,
            trust_env=False,  # no proxy has a part in a local socket
        )
        self._opened.callback(client.close)
        return client

    def close(self) -> None:
        """Hang up."""
        self._opened.close()

    @property
    def is_open(self) -> bool:
        """Whether this process may connect to it."""
        return os.access(self.socket, os.W_OK, effective_ids=True)

    def stream(self, path: str, query: dict[str, int], read_s: float | None) -> Iterator[bytes]:
        """The answer in pieces; each may take `read_s`, None: for ever."""
        timeout = httpx2.Timeout(ANSWER_S, read=read_s)
        with (
            self._reaching(),
            self.http.stream("GET", path, params=query, timeout=timeout) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise _refusal(answer)
            yield from answer.iter_bytes()

    def ask(
        self,
        method: str,
        path: str,
        query: dict[str, int] | None = None,
        read_s: float = ANSWER_S,
    ) -> dict[str, Any]:
        """The answer's JSON, which may take `read_s` to come."""
        timeout = httpx2.Timeout(ANSWER_S, read=read_s)
        with self._reaching():
            answer = self.http.request(method, path, params=query, timeout=timeout)
        if answer.is_error:
            raise _refusal(answer)
        return cast("dict[str, Any]", answer.json())

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TimeoutException as error:
            raise DaemonUnavailable(f"the daemon on {self.socket} does not answer") from error
        except httpx2.TransportError as error:
            if _forbidden(error):
                line = f"{self.socket} is not open to you: {_remedy(self.socket)}"
            elif isinstance(error, httpx2.ConnectError):
                line = f"no daemon answers on {self.socket}; start it with `dlsched run`"
            else:
                line = f"the daemon on {self.socket} broke off: {error}"
            raise DaemonUnavailable(line) from error


def _remedy(socket: Path) -> str:
    """How to be let in, as the socket file itself tells it."""
    try:
        status = socket.stat()
        group = grp.getgrgid(status.st_gid).gr_name
    except (OSError, KeyError):
        return "use sudo"
    if not status.st_mode & 0o020 or status.st_gid == 0:
        return "it is its owner's alone, so use sudo"
    return f"join group {group} (usermod -aG {group} USER, then log in again), or use sudo"


def _path(job: str, what: str) -> str:
    return f"/v1/jobs/{quote(job, safe='')}/{what}"


def _refusal(answer: httpx2.Response) -> Refused:
    try:
        text = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        text = f"the daemon answered {answer.status_code}"
    return Refused(answer.status_code, text)


def _forbidden(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, PermissionError):
            return True
        error = error.__cause__ or error.__context__
    return False

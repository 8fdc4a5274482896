"""What the command line asks the daemon, over its unix socket.

Owns the requests and the one-line errors when nobody answers. It must not print, nor be imported
by the daemon: an HTTP client has no place in its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import httpx2

from dlsched.errors import DaemonUnavailable, DlschedError

ANSWER_S = 10.0
"""So long an answer may take; a log that is followed may be silent for ever."""


class Refused(DlschedError):
    """The daemon answered, but not with what was asked: an unknown job, for one."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


class Daemon:
    """The daemon behind one socket. Every method raises DaemonUnavailable or Refused.

    Answers are the JSON of `dlsched.status`, as it came.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._http = httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(socket)),
            base_url="http://dlsched",
            timeout=ANSWER_S,
            trust_env=False,  # no proxy has a part in a local socket
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def about(self) -> dict[str, Any]:
        """Version, instance, policy, dry_run, watch folder, pid."""
        return self._ask("GET", "/v1/about")

    def jobs(self) -> dict[str, Any]:
        """The node, the engine, every job and every rejected file."""
        return self._ask("GET", "/v1/jobs")

    def why(self, job: str, limit: int) -> dict[str, Any]:
        """The job's row, its last changes, and what the last cycle made of it."""
        return self._ask("GET", _path(job, "why"), {"limit": limit})

    def stop(self, job: str) -> None:
        """Ask that the job be stopped, and stay so."""
        self._ask("POST", _path(job, "stop"))

    def start(self, job: str) -> None:
        """Lift a recorded stop."""
        self._ask("POST", _path(job, "start"))

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output as it comes; with `follow` until the container ends."""
        timeout = httpx2.Timeout(ANSWER_S, read=None if follow else ANSWER_S)
        query = {"tail": tail, "follow": int(follow)}
        with (
            self._reaching(),
            self._http.stream("GET", _path(job, "logs"), params=query, timeout=timeout) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise _refusal(answer)
            yield from answer.iter_bytes()

    def _ask(self, method: str, path: str, query: dict[str, int] | None = None) -> dict[str, Any]:
        with self._reaching():
            answer = self._http.request(method, path, params=query)
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
                line = f"{self.socket} is not open to you: join its group, or use sudo"
            elif isinstance(error, httpx2.ConnectError):
                line = f"no daemon answers on {self.socket}; start it with `dlsched run`"
            else:
                line = f"the daemon on {self.socket} broke off: {error}"
            raise DaemonUnavailable(line) from error


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

"""Sends requests of known service times to a server, takes its metrics pages, keeps the truth.

Standard library only: it runs beside the server, in the server's environment. Into the folder
$STACKS_OUT go the pages (page-00.txt, ...) and truth.json. What the server prints stays on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

OUT = Path(os.environ.get("STACKS_OUT", "."))

SERVICE_S = (0.12, 0.13, 0.14, 0.15, 0.16, 0.17, 0.18, 0.36)
"""Service times, in turn. Their p95 (0.36 s) and all others stand apart from the usual bounds of
histograms (0.1, 0.25, 0.5 s), so that a few milliseconds of overhead change no bucket."""

ROUNDS = 4
BEFORE_S = 0.44
"""Service time of the requests before the first page, which must not count as news."""
BEFORE = 3
HEALTH_EACH = 4
"""A health check after so many requests: fast ones, which are nobody's requests."""
START_TIMEOUT_S = 90.0
REQUEST_TIMEOUT_S = 20.0
END_TIMEOUT_S = 15.0

Call = Callable[[float], tuple[str, str, bytes]]
"""Method, path and body of a request with that service time."""


def json_call(path: str = "/predict") -> Call:
    """A POST whose body is {"s": seconds}."""
    return lambda service_s: ("POST", path, json.dumps({"s": service_s}).encode())


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, method: str, path: str, body: bytes | None = None) -> bytes:
    """The body of the answer, on a connection of its own; OSError for a status beside 2xx."""
    connection = HTTPConnection("127.0.0.1", port, timeout=REQUEST_TIMEOUT_S)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if not 200 <= answer.status < 300:
            raise OSError(f"{method} {path}: {answer.status}: {content[:300]!r}")
        return content
    except HTTPException as error:
        raise OSError(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()


def wait_for(port: int, path: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Return when GET answers. Raises SystemExit when it does not in time."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            ask(port, "GET", path)
            return
        except OSError as error:
            if process is not None and process.poll() is not None:
                raise SystemExit(f"the server has ended: {process.returncode}") from error
            if time.monotonic() > deadline_s:
                raise SystemExit(f"the server does not answer: {error}") from error
            time.sleep(0.2)


@contextmanager
def server(*command: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """That command as a process, with more environment; ended at the end."""
    here = str(Path(__file__).parent)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_TIMEOUT_S)
        # Its workers, too, where it has left some.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def drive(
    port: int,
    call: Call,
    *,
    health: str | None = "/health",
    metrics: str | None = "/metrics",
    metrics_port: int | None = None,
    pages_each: int | None = None,
    settle_s: float = 0.0,
    unit_s: float = 1.0,
    scale: float = 1.0,
) -> None:
    """Send everything, and keep the truth of what was sent after the first page.

    `pages_each`: a page after so many requests, too. `settle_s`: how long the server takes until
    its page shows what happened. `unit_s`: the unit of its histogram.
    `scale`: service times that many times as long.
    """
    pages: list[bytes] = []

    def page() -> None:
        if metrics is not None:
            time.sleep(settle_s)
            pages.append(ask(metrics_port or port, "GET", metrics))

    def timed(service_s: float) -> float:
        began_s = time.perf_counter()
        ask(port, *call(scale * service_s))
        return time.perf_counter() - began_s

    before = [timed(BEFORE_S) for _ in range(BEFORE)]
    page()
    took_s: list[float] = []
    for number, service_s in enumerate(SERVICE_S * ROUNDS, 1):
        took_s.append(timed(service_s))
        if health is not None and number % HEALTH_EACH == 0:
            ask(port, "GET", health)
        if pages_each is not None and number % pages_each == 0:
            page()
    if pages_each is None:
        page()
    # A log has no first page: everything counts.
    keep(took_s if metrics is not None else before + took_s, pages, unit_s=unit_s)


def keep(took_s: Sequence[float], pages: Sequence[bytes], **more: Any) -> None:
    """Write the pages, and the truth of these requests."""
    OUT.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(pages):
        (OUT / f"page-{number:02}.txt").write_bytes(content)
    truth = {"latencies_s": [round(one, 5) for one in took_s], **more}
    (OUT / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


PYTHON = sys.executable

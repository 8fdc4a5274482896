"""Runs a real program in a container of the base image, without a network."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import docker
from docker.errors import APIError

from tests.stacks.stack import Stack
from tools.base_image import BASE

PROGRAMS = Path(__file__).parent / "programs"
TAIL_BYTES = 2000
Log = list[tuple[float, bytes]]
"""What a program printed as it arrived, in seconds since its start."""
SETTINGS = {"PYTHONUNBUFFERED": "1", "COLUMNS": "120", "OMP_NUM_THREADS": "2"}
"""Environment of every program. COLUMNS: the width of progress bars."""
PYTHON = "python3.11"
SHM_BYTES = 512 << 20
"""Ray's object store and torch's workers want more than Docker's 64 MiB."""
_PACKAGES, _PROGRAMS, _OUT = "/packages", "/programs", "/out"


class ProgramFailed(Exception):
    """A program has not done what it is for; what it printed last."""


def tail(log: Log) -> str:
    """The end of a log."""
    return b"".join(chunk for _, chunk in log)[-TAIL_BYTES:].decode("utf-8", "replace")


def printed(client: docker.APIClient, packages: Path, stack: Stack, out: Path) -> Log:
    """Run it with these packages; what its log has. Raises ProgramFailed."""
    site = f"{_PACKAGES}/lib/{PYTHON}/site-packages"
    binds = [f"{packages.resolve()}:{_PACKAGES}:ro", f"{PROGRAMS}:{_PROGRAMS}:ro", f"{out}:{_OUT}"]
    binds += [f"{one}:{one}:ro" for one in stack.files]
    made: str = client.create_container(
        BASE,
        ["python3", f"{_PROGRAMS}/{stack.command[0]}", *stack.command[1:]],
        environment={**SETTINGS, "STACKS_OUT": _OUT, "PYTHONPATH": f"{_PROGRAMS}:{site}"},
        working_dir=_OUT,
        host_config=client.create_host_config(
            binds=binds, network_mode="none", shm_size=SHM_BYTES, init=True
        ),
    )["Id"]
    try:
        return _log_of(client, made, stack)
    finally:
        with suppress(APIError):
            client.remove_container(made, force=True, v=True)


def _log_of(client: docker.APIClient, made: str, stack: Stack) -> Log:
    log: Log = []
    client.start(made)
    began_s = time.monotonic()
    # Killing the container ends its log.
    late = threading.Timer(stack.timeout_s, _kill, (client, made))
    late.start()
    try:
        for chunk in client.logs(made, stream=True, follow=True):
            log.append((time.monotonic() - began_s, chunk))
    finally:
        late.cancel()
    code = client.wait(made)["StatusCode"]
    if code:
        raise ProgramFailed(f"{stack.name}: exit code {code}: {tail(log)}")
    return log


def _kill(client: docker.APIClient, made: str) -> None:
    with suppress(APIError):
        client.kill(made)

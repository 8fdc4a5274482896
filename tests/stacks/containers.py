"""Runs a real program in a container of the base image, without a network."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import docker
from docker.errors import APIError

from tests.stacks.processes import PROGRAMS, SETTINGS, Log, ProgramFailed, tail
from tests.stacks.stack import Stack
from tools.base_image import BASE

PYTHON = "python3.11"
SHM_BYTES = 512 << 20
"""Ray's object store and torch's workers want more than Docker's 64 MiB."""
_PACKAGES, _PROGRAMS, _OUT = "/packages", "/programs", "/out"


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

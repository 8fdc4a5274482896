"""Finds an engine that answers, and connects clients to it. Starts and changes nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import closing

import docker
from docker.errors import DockerException
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException

PING_TIMEOUT_S = 30
"""On a busy host an engine that is well may take seconds."""


def connect(host: str, timeout_s: int = PING_TIMEOUT_S) -> docker.APIClient:
    """Client of the engine at `host`, with TLS as the environment says. Raises DockerException."""
    settings = kwargs_from_env(environment={**os.environ, "DOCKER_HOST": host})
    return docker.APIClient(**settings, timeout=timeout_s)


def listens(path: str) -> bool:
    """Whether a process listens on this unix socket and lets this user connect."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def answers(host: str) -> bool:
    """Whether an engine answers at this host."""
    scheme, _, path = host.partition("://")
    if scheme == "unix" and not listens(path):
        return False
    try:
        with closing(connect(host)) as client:
            return bool(client.ping())
    except (DockerException, RequestException):
        return False


def answering_host(environment: Mapping[str, str]) -> str | None:
    """The host of an engine that answers: the environment's, else one in a typical place."""
    named = environment.get("DOCKER_HOST")
    if named:
        return named if answers(named) else None
    sockets = ["/var/run/docker.sock"]
    if "XDG_RUNTIME_DIR" in environment:
        sockets.append(f"{environment['XDG_RUNTIME_DIR']}/docker.sock")
    return next((host for path in sockets if answers(host := f"unix://{path}")), None)

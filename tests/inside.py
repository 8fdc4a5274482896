"""What a command says inside a container, all of it.

docker-py's own `exec_start` reads past the buffer in which the answer's head came, so what a fast
command wrote by then is lost where the engine is busy. This asks for no upgrade of the connection
and reads the answer as any other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import docker

_HEAD = struct.Struct(">BxxxL")


def run_inside(
    client: docker.APIClient, container: str, command: Sequence[str]
) -> tuple[int | None, bytes]:
    """Its exit code, and what it wrote on both streams, in the order that the engine tells."""
    made: str = client.exec_create(container, list(command))["Id"]
    started: Any = client._post_json(  # type: ignore[attr-defined]
        client._url("/exec/{0}/start", made),  # type: ignore[attr-defined]
        data={"Tty": False, "Detach": False},
        stream=True,
    )
    client._raise_for_status(started)  # type: ignore[attr-defined]
    try:
        told = started.raw.read()
    finally:
        started.close()
    parts, at = [], 0
    while at < len(told):
        _, length = _HEAD.unpack_from(told, at)
        at += _HEAD.size
        parts.append(told[at : at + length])
        at += length
    return client.exec_inspect(made)["ExitCode"], b"".join(parts)

"""Finds the container of a process on a GPU, by its control group."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_ID = re.compile(r"[0-9a-f]{64}")
_READ_BYTES = 8192
_MPS_SERVER = b"nvidia-cuda-mps"
"""Its name, as truncated by the kernel."""


def container_of(pid: int, proc: Path) -> str | None:
    """The id of the container that the process is in; None: in none. Of nested containers it is the
    outermost that the agent itself is not in. Raises OSError where the process is not visible."""
    own = set[str]()
    with suppress(OSError):
        own.update(_ID.findall(_groups("self", proc)))
    return next((one for one in _ID.findall(_groups(str(pid), proc)) if one not in own), None)


def serves_all(pid: int, proc: Path) -> bool:
    """Whether it is the MPS server, which holds a GPU for clients that are listed themselves."""
    try:
        return (proc / str(pid) / "comm").read_bytes().strip() == _MPS_SERVER
    except OSError:
        return False


def _groups(process: str, proc: Path) -> str:
    with (proc / process / "cgroup").open("rb") as file:
        return file.read(_READ_BYTES).decode("utf-8", errors="replace")

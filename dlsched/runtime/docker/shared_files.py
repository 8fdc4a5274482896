"""A file that a job saved in storage that other nodes have, too, as this node's engine shows it."""

from __future__ import annotations

from dlsched.model.errors import DlschedError
from dlsched.model.units import render_bytes
from dlsched.runtime.docker.engine import Engine, EngineRefused

_FOLDER, _LINK = 1 << 31, 1 << 27
"""Bits of Go's file modes."""


class NotShared(DlschedError):
    """The storage does not show that file here. `passing`: perhaps not yet."""

    def __init__(self, text: str, *, passing: bool = False) -> None:
        super().__init__(text)
        self.passing = passing


def size_of(engine: Engine, container: str, path: str) -> int:
    """Bytes of a file in a container, running or not; 0 of a folder, whose own size says nothing.
    Blocks on the engine; raises NotShared: there is none; EngineRefused, EngineUnavailable."""
    try:
        found = engine.stat(container, path)
        if found.mode & _LINK:
            found = engine.stat(container, found.link)
    except EngineRefused as error:
        if error.status != 404:
            raise
        raise NotShared(f"its checkpoint {path} is not there") from error
    return 0 if found.mode & _FOLDER else found.size_bytes


def check_shown(engine: Engine, container: str, path: str, size_bytes: int) -> None:
    """Raises NotShared unless the container has that file with that size; else as `size_of`."""
    found = size_of(engine, container, path)
    if found != size_bytes:
        size, expected = render_bytes(found), render_bytes(size_bytes)
        raise NotShared(f"its checkpoint {path} has {size} here, {expected} where it was saved")

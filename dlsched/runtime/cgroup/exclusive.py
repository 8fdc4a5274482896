"""Claims of containers among all dlsched instances of a host, which end with their process.

A claim is a write lock on one byte of the root group's `cgroup.procs`, by the container's id. It
outlives the container's restarts and takes one descriptor for all. Only who may write control
groups can take one: a lock for reading, which a container could take, is no claim.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC, hierarchies

_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""

_OFFSET_BYTES = 7
"""Of an id's hash, which give the byte: more do not fit into a file's offset."""


class ExclusiveClaims:
    """The containers that this process claims. Thread-safe."""

    def __init__(self, proc: Path | None = PROC) -> None:
        """Where control groups are not mounted writable, and with None, as in a dry run, `take`
        claims nothing, and succeeds."""
        self._lock = threading.Lock()
        self._mine: set[str] = set()
        self._file = None if proc is None else _opened(proc)

    def is_elsewhere(self, container: str) -> bool:
        """Whether another process claims that container."""
        with self._lock:
            return self._is_elsewhere(container)

    def take(self, container: str) -> bool:
        """Claim a container; returns False where another process claims it."""
        with self._lock:
            if container not in self._mine and self._file is not None:
                try:
                    fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _byte(fcntl.F_WRLCK, container))
                    self._mine.add(container)
                except OSError:
                    return not self._is_elsewhere(container)
            return True

    def release(self, container: str) -> None:
        """End the claim, if there is one."""
        with self._lock:
            if container in self._mine:
                self._release(container)

    def release_others(self, kept: Set[str]) -> None:
        """End all claims but those of these containers."""
        with self._lock:
            for container in self._mine - kept:
                self._release(container)

    def close(self) -> None:
        """End all claims."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None
            self._mine.clear()

    def _release(self, container: str) -> None:
        self._mine.remove(container)
        if self._file is not None:
            with suppress(OSError):
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _byte(fcntl.F_UNLCK, container))

    def _is_elsewhere(self, container: str) -> bool:
        if self._file is None:
            return False
        try:
            asked = _byte(fcntl.F_WRLCK, container)
            kind, *_ = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked))
        except OSError:
            return False
        return bool(kind == fcntl.F_WRLCK)


def _opened(proc: Path) -> int | None:
    """The root group's file of the hierarchy that limits CPU; None: not found."""
    with suppress(OSError):
        mounts = hierarchies(proc)
        with_cpu = [one for one in mounts if "cpu" in one.controllers]
        for mount in with_cpu or [one for one in mounts if not one.controllers]:
            if (root := mount.folder("/")) is not None:
                with suppress(OSError):
                    return _open(root / "cgroup.procs")
    return None


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # mounted read-only: others' claims can still be read
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _byte(kind: int, container: str) -> bytes:
    hashed = hashlib.sha256(container.encode()).digest()
    return _FLOCK.pack(kind, os.SEEK_SET, int.from_bytes(hashed[:_OFFSET_BYTES], "big"), 1, 0)

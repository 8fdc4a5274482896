"""How much of the time a container's threads wait for a CPU, on cgroup v1.

Version 2 tells it as pressure. Version 1 tells nothing, but the kernel counts for each thread how
long it was ready to run and did not. Owns that sum. It must not raise for a reading that fails.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC

_READ_BYTES = 4096
"""Of the list of threads: some 600, and others wait as they do."""
_MEAN_S = 10.0
"""Older waits fade, as in the kernel's pressure."""


class RunQueueWait:
    """One group's threads."""

    def __init__(self, folder: Path, proc: Path = PROC) -> None:
        self._tasks, self._proc = folder / "tasks", proc
        self._waited_ns: dict[str, int] = {}
        """By thread, since it began."""
        self._at_s: float | None = None
        self.ratio: float | None = None
        """Part of the last ten seconds or so; several threads that wait at once count each, at
        most 1 in all. None: not known."""

    def look(self, now_s: float) -> None:
        """Take in what they have waited since the last look."""
        before, at_s = self._waited_ns, self._at_s
        self._waited_ns, self._at_s = self._read(), now_s
        if not self._waited_ns:
            self.ratio = None
        elif at_s is not None and now_s > at_s:
            # A thread that is new has waited since it began; a number may be another thread's now.
            waited_ns = sum(
                max(ns - before.get(thread, 0), 0) for thread, ns in self._waited_ns.items()
            )
            elapsed_s = now_s - at_s
            ratio = min(waited_ns / 1e9 / elapsed_s, 1.0)
            kept = 0.0 if self.ratio is None else math.exp(-elapsed_s / _MEAN_S)
            self.ratio = kept * (self.ratio or 0.0) + (1.0 - kept) * ratio

    def _read(self) -> dict[str, int]:
        found = {}
        # The last number may be cut off; of a short list nothing is.
        threads = _start_of(self._tasks)
        for thread in threads[: threads.rfind(b"\n") + 1].decode("ascii", "replace").split():
            words = _start_of(self._proc / thread / "schedstat").split()
            if len(words) == 3 and words[1].isdigit():
                found[thread] = int(words[1])
        return found


def _start_of(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _READ_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)

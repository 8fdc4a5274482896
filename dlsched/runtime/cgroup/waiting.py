"""Run-queue wait of a container's threads on cgroup v1, from the kernel's counts by thread. cgroup
v2 reports it as pressure. A failed reading never raises."""

from __future__ import annotations

import math
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC, start_of

_READ_BYTES = 4096
"""Bytes read of the thread list: some 600 threads, taken as typical of the others."""
_MEAN_S = 10.0
"""Time constant of the exponential average, as in the kernel's pressure."""


class RunQueueWait:
    def __init__(self, folder: Path, proc: Path = PROC) -> None:
        self._tasks, self._proc = folder / "tasks", proc
        self._waited_ns: dict[str, int] = {}
        self._at_s: float | None = None
        self.ratio: float | None = None
        """Fraction of the last ten seconds or so, summed over threads, at most 1. None: unknown."""

    def sample(self, now_s: float) -> None:
        """Update `ratio` with the wait since the last sample."""
        before, at_s = self._waited_ns, self._at_s
        self._waited_ns, self._at_s = self._read(), now_s
        if not self._waited_ns:
            self.ratio = None
        elif at_s is not None and now_s > at_s:
            # A new thread's wait counts whole; a thread id may have been reused.
            waited_ns = sum(
                max(ns - before.get(thread, 0), 0) for thread, ns in self._waited_ns.items()
            )
            elapsed_s = now_s - at_s
            ratio = min(waited_ns / 1e9 / elapsed_s, 1.0)
            kept = 0.0 if self.ratio is None else math.exp(-elapsed_s / _MEAN_S)
            self.ratio = kept * (self.ratio or 0.0) + (1.0 - kept) * ratio

    def _read(self) -> dict[str, int]:
        found = {}
        # The last number may be truncated.
        threads = start_of(self._tasks, _READ_BYTES) or b""
        for thread in threads[: threads.rfind(b"\n") + 1].decode("ascii", "replace").split():
            status = start_of(self._proc / thread / "schedstat", _READ_BYTES) or b""
            fields = status.split()
            if len(fields) == 3 and fields[1].isdigit():
                found[thread] = int(fields[1])
        return found

"""Real time: the loop asks what time it is, and sleeps until then or a wake.

Nothing else in the program may read the time or sleep, but for threads that wait on the engine or
the file system.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from queue import Empty, SimpleQueue

from dlsched.control.ports import Clock


def since_boot_s() -> float:
    """Seconds since the host's start, those in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """Real time. Counts from boot (suspend included), never below what the journal last saw."""

    def __init__(self, not_before_s: float = 0.0) -> None:
        self._offset_s = max(0.0, not_before_s - since_boot_s())
        # Not an Event: its lock would hang a signal handler that interrupts the sleeping thread.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def now_s(self) -> float:
        """Monotonic seconds since boot, shifted past the last run's after a reboot."""
        return since_boot_s() + self._offset_s

    def wall_time(self) -> str:
        """RFC 3339 UTC with milliseconds."""
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep_until(self, until_s: float) -> bool:
        """Wait until then or a wake, and forget all wakes so far."""
        try:
            self._wakes.get(timeout=max(0.0, until_s - self.now_s()))
        except Empty:
            return False
        while not self._wakes.empty():
            self._wakes.get()
        return True

    def wake(self) -> None:
        self._wakes.put(None)

    def cpu_s(self) -> float:
        """CPU time of the calling thread."""
        return time.thread_time()


CHANGES_S = 1.0
"""How often the job folder is compared with what the last scan found in it."""


def wait(clock: Clock, until_s: float, changed: Callable[[], bool]) -> bool:
    """Sleep until that time; returns whether a wake or a changed job file ended the sleep before.
    `changed`: whether a job file has changed, for one call."""
    while (now_s := clock.now_s()) < until_s:
        next_s = min(until_s, now_s + CHANGES_S)
        if clock.sleep_until(next_s) or (next_s < until_s and changed()):
            return True
    return False

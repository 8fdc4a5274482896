"""The port to time: the loop asks it what time it is, and sleeps on it until then or a wake.

Owns both clocks. Nothing else in the program may read the time or sleep, but for threads that wait
on the engine or the file system.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, a wall clock for show, and a sleep that a wake ends."""

    def now_s(self) -> float:
        """Monotonic seconds; never goes back, also not over a restart of the agent."""
        ...

    def wall_time(self) -> str:
        """RFC 3339 UTC, for show only."""
        ...

    def sleep_until(self, until_s: float) -> bool:
        """Wait until that time or a wake; True when it was a wake."""
        ...

    def wake(self) -> None:
        """End the present or the next sleep at once. For any thread, and for signal handlers."""
        ...

    def cpu_s(self) -> float:
        """CPU seconds of this thread, to print what the loop costs."""
        ...


class SystemClock:
    """Real time. Counts from boot (suspend included), never below what the journal last saw."""

    def __init__(self, not_before_s: float = 0.0) -> None:
        self._offset_s = max(0.0, not_before_s - self._boot_s())
        # Not an Event: its lock would hang a signal handler that interrupts the sleeping thread.
        self._wakes: SimpleQueue[None] = SimpleQueue()

    @staticmethod
    def _boot_s() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def now_s(self) -> float:
        """Monotonic seconds since boot, shifted past the last run's after a reboot."""
        return self._boot_s() + self._offset_s

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
        """End the sleep."""
        self._wakes.put(None)

    def cpu_s(self) -> float:
        """CPU time of the calling thread."""
        return time.thread_time()


class VirtualClock:
    """A number that tests and simulations set; sleeping is setting it forward."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self._woken = False

    def now_s(self) -> float:
        """The number."""
        return self._now_s

    def advance(self, by_s: float) -> None:
        """Let that much time pass."""
        self._now_s += by_s

    def wall_time(self) -> str:
        """The number as a time since the epoch."""
        stamp = datetime.fromtimestamp(self._now_s, UTC)
        return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep_until(self, until_s: float) -> bool:
        """Jump there, unless woken."""
        if self._woken:
            self._woken = False
            return True
        self._now_s = max(self._now_s, until_s)
        return False

    def wake(self) -> None:
        """Make the next sleep return at once."""
        self._woken = True

    def cpu_s(self) -> float:
        """Simulated thinking is free."""
        return 0.0

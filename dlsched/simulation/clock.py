"""A clock that is set instead of read."""

from __future__ import annotations

from datetime import UTC, datetime


class VirtualClock:
    """The clock of tests and simulations; sleeping sets it forward."""

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s
        self._woken = False

    def now_s(self) -> float:
        return self._now_s

    def advance(self, by_s: float) -> None:
        self._now_s += by_s

    def wall_time(self) -> str:
        """The time as seconds since the epoch, in ISO format."""
        stamp = datetime.fromtimestamp(self._now_s, UTC)
        return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def sleep_until(self, until_s: float) -> bool:
        """Jump to that time, unless woken."""
        if self._woken:
            self._woken = False
            return True
        self._now_s = max(self._now_s, until_s)
        return False

    def wake(self) -> None:
        """Make the next sleep return immediately."""
        self._woken = True

    def cpu_s(self) -> float:
        """Always 0: simulated decisions cost no time."""
        return 0.0

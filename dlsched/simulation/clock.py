"""A clock that is set, not read."""

from __future__ import annotations

from datetime import UTC, datetime


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

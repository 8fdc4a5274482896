"""What a share of a device's time comes to: pure arithmetic of a job's pacing.

Owns the account: it grows by the share of the time that passes, falls by the time that the device
was busy, and what a step takes too much or a sleep too long is made up for by the next. It must
not read a clock or sleep.

Shares that add up to 1 keep a device busy: jobs together gain what the device can give, so they
cannot all have used up theirs.
"""

from __future__ import annotations

IDLE_S = 2.0
"""A job that was idle of its own accord may make up for it: in any window of so long it may be
busy for its share of it."""
WAITED_S = 60.0
"""The same for one that had to wait for the device."""
LONGEST_S = 120.0
"""A job never has to rest longer: one wrong reading must not put it to sleep for hours."""


class Budget:
    """Time on the device that a job has left, in seconds; negative: it has used too much."""

    def __init__(self, left_s: float = 0.0) -> None:
        self.left_s = left_s

    def gain(self, passed_s: float, share: float, waited: bool) -> None:
        """So much time has passed; `waited`: the job had use for the device, and could not."""
        most_s = (WAITED_S if waited else IDLE_S) * share * (1.0 - share)
        grown_s = self.left_s + share * max(0.0, passed_s)
        self.left_s = min(grown_s, max(most_s, self.left_s))

    def spend(self, busy_s: float, share: float) -> None:
        """The device was busy with the job for so long."""
        self.left_s = max(self.left_s - max(0.0, busy_s), -LONGEST_S * share)

    def rest_s(self, level_s: float, share: float) -> float:
        """How long to rest until so much is left."""
        return max(0.0, (level_s - self.left_s) / share)

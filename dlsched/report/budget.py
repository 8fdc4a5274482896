"""The budget of device time behind a job's pacing. Pure arithmetic.

It grows by the share of the time that passes and falls by the time that the device was busy;
overruns of a step or a sleep are made up for by the next. Shares that add up to 1 keep a device
busy: jobs together gain what the device gives, so they cannot all be out of budget.
"""

from __future__ import annotations

IDLE_S = 2.0
"""A job that was idle by itself may make up for it: in any window of this length it may be busy
for its share of it."""
WAITED_S = 60.0
"""The same for a job that had to wait for the device."""
LONGEST_S = 120.0
"""The longest rest, so that one wrong reading cannot stop a job for hours."""


class Budget:
    """A job's remaining time on the device, in seconds; negative: overdrawn."""

    def __init__(self, left_s: float = 0.0) -> None:
        self.left_s = left_s

    def gain(self, passed_s: float, share: float, waited: bool) -> None:
        """Add the share of this time; `waited`: the job wanted the device, but did not get it."""
        most_s = (WAITED_S if waited else IDLE_S) * share * (1.0 - share)
        grown_s = self.left_s + share * max(0.0, passed_s)
        self.left_s = min(grown_s, max(most_s, self.left_s))

    def spend(self, busy_s: float, share: float) -> None:
        """Subtract the time that the device was busy with the job."""
        self.left_s = max(self.left_s - max(0.0, busy_s), -LONGEST_S * share)

    def rest_s(self, level_s: float, share: float) -> float:
        """How long to rest until that much is left."""
        return max(0.0, (level_s - self.left_s) / share)

"""The wait between two cycles, which a changed job file ends, too."""

from __future__ import annotations

from collections.abc import Callable

from dlsched.control.ports import Clock

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

"""How far what a service tells of its requests lies behind what the kernel counts of its CPU time.

A service writes what it answered once a second, at its own moments, so a look takes in requests of
up to a second before it. As long as it uses the same all the time, that changes nothing. But when a
ceiling cuts its use in two, as many requests as before seem to have cost half, and the next look's
twice. With the lag g, CPU time c and requests n of a look, and use u, before it u', the work of a
request is (c + g (u' - u)) / n; and where w is known and use changes, g = (n - c / w) / ((u' - u) /
w), by weighted least squares with an assumption.

Owns that estimate. It must not know ceilings.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.estimate.tuning import LOOKS

_ASSUMED_S, _ASSUMED = 0.5, 12.0
"""Before anything is known: the mean of what may lie anywhere within a second, and the inverse
variance of that."""
EDGE = 2.0 / 12.0
"""Variance of a count of requests that begins and ends in midst of one, anywhere."""
_JITTER_S = 0.1
"""What it varies by from look to look."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The estimate, and the use of the look before."""

    seconds: float = _ASSUMED_S
    told: float = 0.0
    """Inverse variance of that in seconds, by what was seen alone."""
    used_cores: float | None = None
    """Over the look before; None: unknown."""

    @property
    def variance(self) -> float:
        """Of the lag at a look, in square seconds."""
        return _JITTER_S**2 + 1.0 / (_ASSUMED + self.told)

    def more_before(self, used_cores: float) -> float:
        """By so many cores more were used over the look before than over this one."""
        return 0.0 if self.used_cores is None else self.used_cores - used_cores

    def after(
        self, used_cores: float, core_s: float, count: int, work_core_s: float, noise: float
    ) -> Lag:
        """It after a look at so many requests, whose work is known and varies by `noise`."""
        told = (1.0 - 1.0 / LOOKS) * self.told
        more = self.more_before(used_cores) / work_core_s
        if not more:
            return Lag(self.seconds, told, used_cores)
        # However many requests, a line comes when it comes.
        evidence = 1.0 / ((noise * noise * count + EDGE) / (more * more) + _JITTER_S**2)
        seen_s = (count - core_s / work_core_s) / more
        gain = evidence / (told + evidence + _ASSUMED)
        seconds = self.seconds + gain * (seen_s - self.seconds)
        return Lag(min(max(seconds, 0.0), 1.0 + 2.0 * _JITTER_S), told + evidence, used_cores)

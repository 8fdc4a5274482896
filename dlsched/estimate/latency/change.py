"""Page's test (CUSUM): detects a change of a service's load."""

from __future__ import annotations

from typing import NamedTuple

_ALLOWANCE, _ALARM_BOUND = 0.6, 4.5
"""In standard errors: about one false alarm in 2,000 samples."""


class PageTest(NamedTuple):
    """A cumulative sum with its sign, and the amount and requests since it began to grow."""

    drift: float
    total: float
    requests: float

    @property
    def alarms(self) -> bool:
        return abs(self.drift) > _ALARM_BOUND

    def after(self, off: float, amount: float, count: int) -> PageTest:
        """The test after a sample that is `off` by so many standard errors and sums to `amount`."""
        up = max(self.drift, 0.0) + off - _ALLOWANCE
        drift = up if up > 0.0 else min(min(self.drift, 0.0) + off + _ALLOWANCE, 0.0)
        if drift == 0.0:
            return PageTest(0.0, 0.0, 0.0)
        if drift * self.drift > 0.0:
            return PageTest(drift, self.total + amount, self.requests + count)
        return PageTest(drift, amount, float(count))

"""Page's test: whether a service has another load than before."""

from __future__ import annotations

from typing import NamedTuple

_ALLOWANCE, _ALARM_BOUND = 0.6, 4.5
"""Of Page's test, in standard errors: about one false alarm in 2,000 looks."""


class PageTest(NamedTuple):
    """One of Page's sums, with its sign, and what was seen since it began to grow."""

    drift: float
    total: float
    requests: float

    @property
    def alarms(self) -> bool:
        """Whether it tells of a change."""
        return abs(self.drift) > _ALARM_BOUND

    def after(self, off: float, amount: float, count: int) -> PageTest:
        """It after a look that is off by so many standard errors, at so much in all requests."""
        up = max(self.drift, 0.0) + off - _ALLOWANCE
        drift = up if up > 0.0 else min(min(self.drift, 0.0) + off + _ALLOWANCE, 0.0)
        if drift == 0.0:
            return PageTest(0.0, 0.0, 0.0)
        if drift * self.drift > 0.0:
            return PageTest(drift, self.total + amount, self.requests + count)
        return PageTest(drift, amount, float(count))

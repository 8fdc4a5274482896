"""What can be chosen about the policy `tradl`. It must not decide anything."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TradlParameters:
    """The published structure's constants, and what the text leaves open."""

    weights: str = "growth"
    """What jobs below their first tier share by: `growth`, growth efficiency; `closest`, one over
    the time to the tier at the present pace."""
    settled_ratio: float = 1.0
    """Limit of jobs at their first tier and beyond, as a ratio of N/(n+1). That much for each lets
    n jobs cut the last one's time by (n-1)/2n at most; less shortens it further, at the cost of
    those that wait for their second tier."""
    interval_s: float = 10.0
    """Seconds between decisions while a job is below its first tier: how late a reached tier is
    noticed."""
    window_s: float = 30.0
    """Length in seconds of the two windows that growth is measured over: FlowCon's interval."""
    least_ratio: float = 0.1
    """Least limit below the first tier, as a ratio of an equal share: enough to go on reporting,
    or its growth could never be seen again."""
    headroom_ratio: float = 1.25
    """A job that leaves its limit unused may have so many times what it uses, the rest goes to
    others: a trainer cannot use more cores than it has threads."""
    patience_s: float = 300.0
    """Give-up rule: least seconds, at an equal share of CPU or pro rata, without a step towards
    the first tier until a job counts as unable to reach it."""
    step_ratio: float = 0.05
    """Give-up rule: part of what is missing to the first tier that must be closed to count as a
    step."""
    backoff: int = 8
    """How many times its base the interval may grow while no job is below its first tier."""

    def __post_init__(self) -> None:
        if self.weights not in {"growth", "closest"}:
            raise ValueError(f"weights is {self.weights!r}, must be growth or closest")
        for name in ("interval_s", "window_s", "patience_s"):
            if not 1 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1 and finite")
        for name in ("least_ratio", "step_ratio"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be between 0 and 1")
        if not 0 < self.settled_ratio <= 1:
            raise ValueError(f"settled_ratio is {self.settled_ratio}, must be in (0, 1]")
        if not 1.2 <= self.headroom_ratio < math.inf:
            raise ValueError(f"headroom_ratio is {self.headroom_ratio}, must be at least 1.2")
        if self.backoff < 1:
            raise ValueError(f"backoff is {self.backoff}, must be at least 1")

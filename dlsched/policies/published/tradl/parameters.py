"""Parameters of the policy `tradl`."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TradlParameters:
    """The published constants, and choices that the paper leaves open."""

    weights: str = "growth"
    """Weights of jobs below their first tier: growth efficiency (`growth`), or one over the time to
    the tier at the present pace (`closest`)."""
    settled_ratio: float = 1.0
    """Limit of jobs at or past their first tier, as a ratio of N/(n+1). With 1, n jobs can cut the
    last one's time by at most (n-1)/2n; less cuts it further, at the cost of the second tiers."""
    interval_s: float = 10.0
    """Seconds between decisions while a job is below its first tier: the delay until a reached tier
    is noticed."""
    window_s: float = 30.0
    """Length in seconds of the two windows for growth: FlowCon's interval."""
    least_ratio: float = 0.1
    """Lowest limit below the first tier, as a ratio of an equal share: a job without CPU cannot
    report, so its growth could never be measured again."""
    headroom_ratio: float = 1.25
    """A job that leaves its limit unused gets at most this factor times its use, and others get the
    rest: a training cannot use more cores than it has threads."""
    patience_s: float = 300.0
    """Give-up rule: least seconds without a step towards the first tier, at an equal share of CPU
    (less counts pro rata), until the tier counts as out of reach."""
    step_ratio: float = 0.05
    """Give-up rule: a step closes this fraction of what is missing to the first tier."""
    backoff: int = 8
    """Largest factor on the interval while no job is below its first tier."""

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

"""What can be chosen about the policy `dqoes`. It must not decide anything."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DqoesParameters:
    """The published band, and one parameter for each thing mended."""

    alpha: float = 0.10
    """Half width of the satisfied band, as a ratio of the target: the paper's 10 %."""
    aim_ratio: float = 1.0
    """Where in the band to aim, as a ratio of the target: 1 for the middle, two-sided; about 0.9
    where only "not slower than" counts."""
    inner_ratio: float = 0.05
    """Deviation that is left alone, as a ratio: inside the band, so that a job at the border is
    nudged before noise carries it over."""
    gain: float = 0.7
    """Power of measured over target that one step applies: closed-loop latency is about work over
    limit, for which 1 is exact; below 1 forgives queues, whose latency answers more steeply."""
    starved_gain: float = 0.05
    """Power by which a job that triage passed over may become cheaper: what it shows when starved
    is the least that it needs, and believing that would let it in and out for ever."""
    step_ratio: float = 2.0
    """A step at most multiplies or divides by so much: one bad window must not move mountains."""
    noise_sigmas: float = 2.0
    """Part of a deviation that is taken for noise, in standard errors of the measured mean."""
    min_requests: int = 3
    """Fewest requests under the present limit that say anything of a job's speed."""
    min_window_s: float = 1.0
    """Shortest time under the present limit, in seconds: ten scheduling periods, since a quota
    comes in slices of 100 ms."""
    throttled_ratio: float = 0.1
    """Part of the scheduling periods that hit the quota, from which it holds a job back."""
    binding_ratio: float = 0.6
    """Part of its quota that a job uses while it serves, from which it may hold it back: queues
    alone make it look like 0.6."""
    squeeze_ratio: float = 0.05
    """How far inside the band's slow half jobs are packed when not all fit, as a ratio."""
    keep_ratio: float = 0.8
    """What the price of a job satisfied last time is multiplied by in triage, so that two jobs of
    like price do not take turns."""
    floor_ratio: float = 0.05
    """Lowest limit as a ratio of an equal share: enough to keep measuring."""
    retry_s: float = 120.0
    """Seconds until a target that more CPU did not help is tried again."""
    interval_s: float = 2.0
    """Seconds between decisions while any job is outside the band."""
    backoff: int = 4
    """How many times its base the interval may grow while all are satisfied."""
    saturated_ratio: float = 0.96
    """Part of the host's cores in use from which ceilings that sum to capacity cannot be had."""

    def __post_init__(self) -> None:
        for name in ("alpha", "inner_ratio", "squeeze_ratio"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be between 0 and 1")
        for name in (
            "aim_ratio",
            "gain",
            "starved_gain",
            "throttled_ratio",
            "binding_ratio",
            "keep_ratio",
            "floor_ratio",
            "saturated_ratio",
        ):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be above 0, at most 1")
        for name in ("noise_sigmas", "min_window_s", "retry_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, must be finite, not negative")
        if not 0 < self.interval_s < math.inf:
            raise ValueError(f"interval_s is {self.interval_s}, must be above 0 and finite")
        if not 1 < self.step_ratio < math.inf:
            raise ValueError(f"step_ratio is {self.step_ratio}, must be above 1 and finite")
        if self.min_requests < 1 or self.backoff < 1:
            raise ValueError("min_requests and backoff must be at least 1")

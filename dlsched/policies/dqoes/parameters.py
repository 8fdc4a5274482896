"""Parameters of the policy `dqoes`."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DqoesParameters:
    """The published band, and a parameter for each correction of the published rule."""

    alpha: float = 0.10
    """Half width of the satisfied band, as a ratio of the target: the paper's 10 %."""
    aim_ratio: float = 1.0
    """The aim as a ratio of the target: 1 is the middle of the band; about 0.9 where only "not
    slower than" counts."""
    inner_ratio: float = 0.05
    """Dead band, as a ratio of the aim: inside the band, so that a job is corrected before noise
    carries it over the border."""
    gain: float = 0.7
    """Exponent of (measured / target) in one step. Closed-loop latency is about work / limit, for
    which 1 is exact; below 1 allows for queues, whose latency responds more steeply."""
    starved_gain: float = 0.05
    """Exponent by which the need of a job left out by triage may fall. A starved job shows the
    least that it needs; to believe that would let it in and out for ever."""
    step_ratio: float = 2.0
    """Largest factor of one step, so that one bad window does not change a limit too far."""
    noise_sigmas: float = 2.0
    """Deviation that counts as noise, in standard errors of the measured mean."""
    min_requests: int = 3
    """Fewest requests under the present limit by which speed is judged."""
    min_window_s: float = 1.0
    """Shortest time under the present limit, in seconds: ten periods of a quota, 100 ms each."""
    throttled_ratio: float = 0.1
    """Fraction of throttled scheduling periods from which the quota is binding."""
    binding_ratio: float = 0.6
    """Fraction of its quota used while serving, from which the quota may be binding; queues alone
    make it look like 0.6."""
    squeeze_ratio: float = 0.05
    """How far into the slow half of the band jobs are placed when not all fit, as a ratio."""
    keep_ratio: float = 0.8
    """Hysteresis of triage: factor on the price of a job that was satisfied last time, so that two
    jobs of similar price do not alternate."""
    floor_ratio: float = 0.05
    """Lowest limit as a ratio of an equal share: enough to keep measuring."""
    retry_s: float = 120.0
    """Seconds until more CPU is tried again for a job that it did not help."""
    interval_s: float = 2.0
    """Seconds between decisions while any job is outside the band."""
    backoff: int = 4
    """Largest factor on the interval while all jobs are satisfied."""
    saturated_ratio: float = 0.96
    """Utilisation of the host from which ceilings that sum to capacity cannot all be used."""

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

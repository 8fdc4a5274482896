"""What can be chosen about the policy `adaptive`. It must not decide anything."""

from __future__ import annotations

import math
from dataclasses import dataclass

MODES = ("slo", "band")


@dataclass(frozen=True, slots=True)
class AdaptiveParameters:
    """The mode, and the constants of both halves."""

    mode: str = "slo"
    """`slo`: not slower than the target; `band`: within 10 % of it on either side, as the DQoES
    paper counts, so that no job is faster than it has to be."""
    interval_s: float = 1.0
    """Seconds between decisions."""
    deliver_weight: float = 8.0
    """What it is worth to bring a training to `deliver` sooner, against an equal gain at its end:
    8, 2, 1 help the first tier most and hurt none; 16 delivers first at the end's expense."""
    finish_weight: float = 2.0
    """The same for `finish`."""
    end_weight: float = 1.0
    """The same for the end: above 0, or a job past its tiers would never go on."""
    guard_ratio: float = 0.9
    """A training whose remaining critical path is above this part of all work left over all cores
    goes first: else it would be left over, alone, at the end. 0: none does."""
    tiers_first: bool = False
    """Whether trainings below their first tier go before those past it, and these before those past
    both, whatever a core-second brings there: sooner delivered, at the expense of the ends."""
    explore_ratio: float = 0.25
    """Part of the cores for trainings of which too little is known to rank them. 0: none."""
    explore_points: int = 5
    """Evaluations from which on a training is known."""
    fits_most: int = 8
    """Learning curves fitted in one decision, those that wait longest first: 0.5 ms each."""
    averages_curves: bool = True
    """Whether all shapes of a learning curve count as far as they fit, or the best one alone."""
    heeds_total_steps: bool = True
    """Whether a training's own word on how many steps it will take counts."""
    end_over_finish: float = 1.35
    """Where no word counts, the end is taken for so many times the steps to `finish`."""
    give_up_chance: float = 0.05
    """A tier less likely to be reached before the end than this counts no more."""
    doubt_ratio: float = 0.9
    """Belief, at the beginning, that a learning curve is of none of the shapes that are fitted:
    real ones stand still or drop where the fit sees their end. It fades along the way."""
    blind_s: float = 120.0
    """A training without a word for so long, while it has CPU, is served like one that never told
    anything; a service keeps its ceiling so long, and then has none until it reports."""
    slo_aim: float = 0.85
    """`slo`: where there is room, a service is held so far below its target: noise comes too."""
    band_aim: float = 0.95
    """`band`: the same for a mean: the middle of the band's fast half, so that it is not slower
    than its target either."""
    band_aim_quantile: float = 0.99
    """`band`: the same for a quantile, which is known too badly to be kept in half a band: its
    middle on a logarithmic scale."""
    retry_s: float = 120.0
    """What was tried in vain, more CPU for a service that did not get faster, is not tried again
    for so long."""
    triages: bool = True
    """Whether, when not all targets can be met, the cheapest per weight are; else all get less."""
    trims: bool = True
    """Whether a service's model follows what is measured for ever, as an integral action."""
    forgets_loads: bool = True
    """Whether another load of a service is noticed, and what was known of the last forgotten."""
    reverts: bool = True
    """Whether more CPU that did not bring what it should is taken back."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}, must be one of {', '.join(MODES)}")
        if not 0 < self.interval_s < math.inf:
            raise ValueError(f"interval_s is {self.interval_s}, must be above 0 and finite")
        for name in ("deliver_weight", "finish_weight", "end_weight", "blind_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, must be above 0 and finite")
        for name in ("slo_aim", "band_aim", "band_aim_quantile", "retry_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, must be above 0 and finite")
        for name in ("guard_ratio", "explore_ratio", "give_up_chance", "doubt_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be 0 to 1")
        for name in ("explore_points", "fits_most"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        if not 1 <= self.end_over_finish < math.inf:
            raise ValueError(f"end_over_finish is {self.end_over_finish}, must be at least 1")

"""Parameters of the policy `adaptive`."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.policies.ranges import above_zero, at_least, one_of, ratios

MODES = ("slo", "band")


@dataclass(frozen=True, slots=True)
class AdaptiveParameters:
    """The mode, and the parameters for services and for trainings."""

    mode: str = "slo"
    """`slo`: latency at most the target; `band`: within 10 % of it on either side, as the DQoES
    paper counts, so that no service is faster than necessary."""
    interval_s: float = 1.0
    """Seconds between decisions."""
    deliver_weight: float = 8.0
    """Value of reaching `deliver`, relative to `finish_weight` and `end_weight`. With 8, 2 and 1
    `deliver` is reached soonest without delaying the rest; 16 in place of 8 reaches it sooner
    still, but trainings end later."""
    finish_weight: float = 2.0
    """Value of reaching `finish`, relative to `deliver_weight` and `end_weight`."""
    end_weight: float = 1.0
    """Value of a training's end, relative to `deliver_weight` and `finish_weight`. It is above 0:
    with 0 a training that has reached `finish` would get no CPU any more."""
    patience: float = 0.05
    """How much later than with equal shares of the CPU a training may be expected to end, as a
    fraction of its time with equal shares."""
    tiers_first: bool = False
    """Whether trainings that have not reached `deliver` always come before those that have, and
    these before those that have reached `finish`, whatever the marginal value. `deliver` is then
    reached earlier, and trainings end later."""
    explore_ratio: float = 0.25
    """Exploration: fraction of the cores for trainings with too few evaluations to be ranked."""
    explore_points: int = 5
    """Evaluations after which a training can be ranked."""
    fits_most: int = 8
    """Most learning curves that are fitted in one decision (0.5 ms each); those that waited longest
    come first."""
    heeds_total_steps: bool = True
    """Whether the total number of steps that a training reports is used."""
    end_over_finish: float = 1.35
    """For a training that reports no total: its end is assumed at this many times the steps to
    `finish`."""
    give_up_chance: float = 0.05
    """Chance of reaching `deliver` (or `finish`) before the training's end, below which the policy
    no longer counts on that value."""
    doubt_ratio: float = 0.9
    """Probability, at a training's first step, that its learning curve has none of the fitted
    shapes, as real curves may stall or drop where the fit goes on. It falls with each step, to 0 at
    the training's last one."""
    blind_s: float = 120.0
    """Seconds without a report after which a training that gets CPU is treated like one that has
    never reported, and a service has no ceiling until it reports again."""
    slo_aim: float = 0.85
    """`slo`: with enough CPU, a service aims at this fraction of its target, a margin for noise."""
    band_aim: float = 0.95
    """`band`: a service with a target for its mean aims at this fraction of the target, the middle
    of the band's fast half, so that it also meets the target."""
    band_aim_quantile: float = 0.99
    """`band`: a service with a target for a quantile, such as p95, aims at this fraction of the
    target: nearly the geometric mean of 0.9 and 1.1, the borders of the band. `band_aim`, between
    0.9 and 1, asks for more exactness than a measured quantile has."""
    retry_s: float = 120.0
    """Seconds until more CPU is tried again for a service that more CPU did not make faster."""

    def __post_init__(self) -> None:
        one_of(MODES, self, "mode")
        above_zero(
            self,
            "interval_s",
            "deliver_weight",
            "finish_weight",
            "end_weight",
            "blind_s",
            "slo_aim",
            "band_aim",
            "band_aim_quantile",
            "retry_s",
        )
        ratios(self, "patience", "explore_ratio", "give_up_chance", "doubt_ratio")
        at_least(1, self, "explore_points", "fits_most", "end_over_finish")

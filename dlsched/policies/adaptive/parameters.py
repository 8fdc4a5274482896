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
    """Value of reaching `deliver`, relative to `finish_weight` and `end_weight`. 8, 2, 1 help the
    first tier most and hurt none; 16 delivers sooner, but trainings end later."""
    finish_weight: float = 2.0
    """Value of reaching `finish`."""
    end_weight: float = 1.0
    """Value of the end: above 0, or a job past its tiers would never continue."""
    patience: float = 0.05
    """Largest delay of a training's expected end, as a fraction of its time if all shared the CPU
    equally."""
    tiers_first: bool = False
    """Whether trainings below their first tier always precede those past it, and these those past
    both, whatever the marginal value: deliveries come earlier, ends later."""
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
    """A tier with a smaller chance of being reached before the end is given up."""
    doubt_ratio: float = 0.9
    """Probability, at a training's first step, that its learning curve has none of the fitted
    shapes, as real curves may stall or drop where the fit goes on. It falls with each step, to 0 at
    the training's last one."""
    blind_s: float = 120.0
    """Seconds without a report until a training that gets CPU is treated like one that never
    reported, and until a service has no ceiling, up to its next report."""
    slo_aim: float = 0.85
    """`slo`: with enough CPU, a service aims at this fraction of its target, a margin for noise."""
    band_aim: float = 0.95
    """`band`: the aim for a mean: the middle of the band's fast half, so that it also meets the
    target."""
    band_aim_quantile: float = 0.99
    """`band`: the aim for a quantile: the middle of the whole band on a logarithmic scale, since
    estimates of a quantile are too inexact for half a band."""
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

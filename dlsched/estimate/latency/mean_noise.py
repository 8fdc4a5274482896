"""What the mean of a look's requests varies by, learned from how looks that follow differ.

Requests of a closed loop that share a quota's periods take turns: some wait for the next period and
some do not, so they vary by much more than their mean does. With s the deviation of the logarithm
of a look's mean, times the square root of its requests n, two looks that follow differ by s
sqrt(1 / n + 1 / n') in the mean square; a law that slowly changes hardly adds to that.

Owns that estimate. It must not know what the mean is held against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.estimate.tuning import LOOK_WEIGHT, LOOKS, SIGMAS


@dataclass(frozen=True, slots=True)
class MeanNoise:
    """The estimate, and the look before."""

    square: float = 0.0
    looks: float = 0.0
    last_off: float = 0.0
    """Logarithm of the last mean over what it should be."""
    last_count: int = 0
    """Its requests; 0: it tells nothing of the next."""

    def believed(self, variation: float) -> float:
        """s, where requests vary by that part of their mean."""
        told = min(LOOK_WEIGHT * self.looks, 1.0)
        return math.sqrt(told * self.square + (1.0 - told) * variation * variation)

    def after(self, off: float, count: int, believed: float) -> MeanNoise:
        """It after a look at so many requests, off by so much, where that s is believed."""
        if not self.last_count:
            return MeanNoise(self.square, self.looks, off, count)
        # A pause is no noise.
        most = SIGMAS**2 * believed * believed
        drawn = (off - self.last_off) ** 2 / (1.0 / count + 1.0 / self.last_count)
        looks = min(self.looks, LOOKS) + 1.0
        return MeanNoise(self.square + (min(drawn, most) - self.square) / looks, looks, off, count)

    def interrupted(self) -> MeanNoise:
        """It after a look that tells nothing of means."""
        return MeanNoise(self.square, self.looks) if self.last_count else self

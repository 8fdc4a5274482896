"""Estimate of the noise of a sample's mean latency, from the differences of successive samples.

Requests of a closed loop alternate within a quota's periods: some wait for the next period, some do
not, so single requests vary much more than their mean. Let s be the standard deviation of the
logarithm of a sample's mean, times the square root of its requests n. Then two successive samples
differ by s sqrt(1 / n + 1 / n') in root mean square; a slow change of the law adds little to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.estimate.tuning import SAMPLE_WEIGHT, SAMPLES, SIGMAS


@dataclass(frozen=True, slots=True)
class MeanNoise:
    """The estimate (`square` is s squared), and the previous sample."""

    square: float = 0.0
    looks: float = 0.0
    last_off: float = 0.0
    """Logarithm of the previous mean over its prediction."""
    last_count: int = 0
    """Requests of the previous sample; 0: it cannot be compared with the next."""

    def believed(self, variation: float) -> float:
        """s; with few samples it is drawn to `variation`, that of independent requests."""
        trust = min(SAMPLE_WEIGHT * self.looks, 1.0)
        return math.sqrt(trust * self.square + (1.0 - trust) * variation * variation)

    def after(self, off: float, count: int, believed: float) -> MeanNoise:
        """The estimate after a sample of `count` requests whose logarithm is `off`."""
        if not self.last_count:
            return MeanNoise(self.square, self.looks, off, count)
        # Outliers are cut off: a pause is no noise.
        most = SIGMAS**2 * believed * believed
        drawn = (off - self.last_off) ** 2 / (1.0 / count + 1.0 / self.last_count)
        samples = min(self.looks, SAMPLES) + 1.0
        return MeanNoise(
            self.square + (min(drawn, most) - self.square) / samples, samples, off, count
        )

    def interrupted(self) -> MeanNoise:
        """The estimate after a sample that is not comparable."""
        return MeanNoise(self.square, self.looks) if self.last_count else self

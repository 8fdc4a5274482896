"""Estimate of the lag of a service's reports behind the CPU time that the kernel counts.

A service reports its answers once a second, at its own moments, so a sample includes requests of
up to a second before it. At constant use that changes nothing. But when a ceiling halves the use,
the same number of requests seems to cost half, and the ones of the next sample twice.

With lag g, CPU time c and requests n of a sample, its use u and that of the sample before u', the
work of a request is (c + g (u' - u)) / n. Where work w is known and use changes, g = (n - c / w) /
((u' - u) / w), estimated by weighted least squares with a prior.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.estimate.tuning import SAMPLES

_ASSUMED_S, _ASSUMED = 0.5, 12.0
"""The prior: mean and inverse variance of a uniform distribution over one second."""
EDGE = 2.0 / 12.0
"""Variance of a count of requests whose first and last one are cut anywhere."""
_JITTER_S = 0.1
"""Standard deviation of the lag from sample to sample."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The estimate, and the use in the previous sample (None: unknown)."""

    seconds: float = _ASSUMED_S
    told: float = 0.0
    """Inverse variance of `seconds` by observations alone, without the prior."""
    used_cores: float | None = None

    @property
    def variance(self) -> float:
        """Variance of the lag in one sample, in square seconds."""
        return _JITTER_S**2 + 1.0 / (_ASSUMED + self.told)

    def more_before(self, used_cores: float) -> float:
        """Cores used in the previous sample less those used in this one."""
        return 0.0 if self.used_cores is None else self.used_cores - used_cores

    def after(
        self, used_cores: float, core_s: float, count: int, work_core_s: float, noise: float
    ) -> Lag:
        """The estimate after a sample of `count` requests, whose work varies by `noise`."""
        known = (1.0 - 1.0 / SAMPLES) * self.told
        more = self.more_before(used_cores) / work_core_s
        if not more:
            return Lag(self.seconds, known, used_cores)
        # Jitter of the report does not fall with the number of requests.
        evidence = 1.0 / ((noise * noise * count + EDGE) / (more * more) + _JITTER_S**2)
        measured_s = (count - core_s / work_core_s) / more
        gain = evidence / (known + evidence + _ASSUMED)
        seconds = self.seconds + gain * (measured_s - self.seconds)
        return Lag(min(max(seconds, 0.0), 1.0 + 2.0 * _JITTER_S), known + evidence, used_cores)

"""What was measured before and after a change of limits. It names no cause: load, clients and other
jobs may have changed in the same time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dlsched.estimate.latency.law import normal_quantile
from dlsched.estimate.sketch import cv, measured_s, merge
from dlsched.estimate.tuning import FEW_REQUESTS, MARGIN, SETTLED_S
from dlsched.model.facts import LatencySketch
from dlsched.model.units import counted, render_seconds

BEFORE_S = 30.0
"""Time before a change that is compared: at a request a second enough to judge."""
AFTER_FROM_S = SETTLED_S
"""What is measured in so many first seconds is not compared: a queue from before drains then."""
AFTER_UNTIL_S = AFTER_FROM_S + BEFORE_S
"""End of what is compared, so that both times are equally long."""

_SIGMAS = 3.0
"""Standard errors that are not chance. Fewer than `SIGMAS`, which are for a test in every second:
here is one for each change. More than two, since neighbours in a queue have similar latencies."""
_VISIBLE = 1.5
"""Factor that must have been visible above the noise, if "no effect" is to be claimed."""


class Verdict(StrEnum):
    """How the measured value of the target differs after a change."""

    HELPED = "helped"
    SLOWER = "slower"
    NONE = "no effect"
    FEW = "too few requests"
    UNJUDGED = "not judged"
    """The job was changed again before the end of what is compared."""
    LATER = "not yet"
    """The end of what is compared has not come yet."""


@dataclass(frozen=True, slots=True)
class CycleLatency:
    """The requests that a job reported in one cycle."""

    now_s: float
    latency: LatencySketch


@dataclass(frozen=True, slots=True)
class Effect:
    """What was measured of one change. Times are None without a request."""

    verdict: Verdict
    before_s: float | None = None
    after_s: float | None = None
    requests_before: int = 0
    requests_after: int = 0
    least_requests: int = FEW_REQUESTS
    """Requests that each of both times needs."""
    waits_s: float | None = None
    """Time until the next change of the job, or until the effect is known."""
    others: int = 0
    """Number of other jobs that were changed in the same time."""
    of_mean: bool = False
    """Whether the mean is compared, since of the target's quantile only bounds are known."""

    def __str__(self) -> str:
        wait = render_seconds(round(self.waits_s or 0.0))
        if self.verdict is Verdict.UNJUDGED:
            return f"{self.verdict}: the job's limits changed again after {wait}"
        if self.verdict is Verdict.LATER:
            return f"effect: measured in {wait}"
        fewest = min((self.requests_after, "after"), (self.requests_before, "before"))
        if self.verdict is Verdict.FEW and fewest[0] < self.least_requests:
            text = f"{self.verdict} ({fewest[0]} {fewest[1]} the change)"
        else:
            doubt = " to tell" if self.verdict is Verdict.FEW else ""
            requests = self.requests_before + self.requests_after
            text = f"{self.verdict}{doubt}: {self._times()} ({requests} requests)"
        if self.others:
            text += f", {counted(self.others, 'other job')} changed too"
        return text

    def _times(self) -> str:
        before, after = (render_seconds(each or 0.0) for each in (self.before_s, self.after_s))
        unit = f" {after.partition(' ')[2]}"
        return f"{'mean ' if self.of_mean else ''}{before.removesuffix(unit)} -> {after}"


def not_judged(changed_at_s: float, next_s: float | None, last_s: float) -> Effect | None:
    """Why the effect of a change is not known at `last_s`; None: it is, by `effect`. `next_s`: time
    of the next change of the same job."""
    if next_s is not None and next_s - changed_at_s < AFTER_UNTIL_S:
        return Effect(Verdict.UNJUDGED, waits_s=next_s - changed_at_s)
    if last_s < changed_at_s + AFTER_UNTIL_S:
        return Effect(Verdict.LATER, waits_s=changed_at_s + AFTER_UNTIL_S - last_s)
    return None


def effect(
    measured: Iterable[CycleLatency],
    quantile: float | None,
    changed_at_s: float,
    *,
    earlier_s: float | None = None,
    others: int = 0,
) -> Effect:
    """The effect of a change on the mean latency (`quantile` None) or a quantile. `earlier_s`: the
    job's change before, since requests from before it had yet other limits."""
    since_s = changed_at_s - BEFORE_S
    if earlier_s is not None:
        since_s = max(since_s, earlier_s)
    first_s, end_s = changed_at_s + AFTER_FROM_S, changed_at_s + AFTER_UNTIL_S
    measured = tuple(measured)
    before = merge(*(one.latency for one in measured if since_s < one.now_s <= changed_at_s))
    after = merge(*(one.latency for one in measured if first_s < one.now_s <= end_s))
    before_s, after_s = measured_s(before, quantile), measured_s(after, quantile)
    of_mean = quantile is not None and None in (before_s, after_s)
    if of_mean:
        quantile, before_s, after_s = None, measured_s(before, None), measured_s(after, None)
    least = FEW_REQUESTS
    if quantile is not None:  # of fewer, the quantile is the slowest request
        least = max(least, math.ceil(round(1.0 / max(1.0 - quantile, 1e-3), 6)))
    verdict = Verdict.FEW
    if before_s and after_s and min(before.count, after.count) >= least:
        times = math.log(after_s / before_s)
        noise = _SIGMAS * math.hypot(_noise(before, quantile), _noise(after, quantile))
        margin = math.log(MARGIN)
        if abs(times) > max(margin, noise):
            verdict = Verdict.HELPED if times < 0.0 else Verdict.SLOWER
        elif abs(times) <= margin and noise <= math.log(_VISIBLE):
            verdict = Verdict.NONE
    return Effect(
        verdict,
        before_s,
        after_s,
        before.count,
        after.count,
        least_requests=least,
        others=others,
        of_mean=of_mean,
    )


def _noise(sketch: LatencySketch, quantile: float | None) -> float:
    """Standard error of the logarithm of the mean, or of a quantile of a log-normal."""
    variation = cv(sketch) or 0.0
    if quantile is None:
        return variation / math.sqrt(sketch.count)
    _, density = normal_quantile(quantile)
    spread = math.sqrt(math.log1p(variation * variation))
    return spread * math.sqrt(quantile * (1.0 - quantile)) / density / math.sqrt(sketch.count)

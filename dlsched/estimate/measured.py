"""What is compared with a job's target, as pages show it and the journal keeps it."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

from dlsched.estimate.sketch import Bounds, against_target_s, bounds_of, quantile_bounds
from dlsched.estimate.tuning import SIGMAS
from dlsched.model.facts import LatencySketch
from dlsched.model.spec import BAND_RATIO, AccuracyTarget, LatencyTarget, Target
from dlsched.model.state import JobView, Progress
from dlsched.model.units import closest, render_percent, render_quantile, render_seconds

REQUESTS_MIN = 5
"""A latency of fewer requests is not compared with its target."""


class Judged(StrEnum):
    """How a latency compares with its target, in the words of pages."""

    ON_TARGET = "on target"
    JUST_ABOVE = "just above"
    """Above it, but within its band."""
    SLOW = "slow"


def judged(ratio: float) -> Judged:
    """`ratio`: latency over target."""
    if ratio <= 1.0 + 1e-9:
        return Judged.ON_TARGET
    return Judged.JUST_ABOVE if ratio <= 1.0 + BAND_RATIO + 1e-9 else Judged.SLOW


def is_failing(sketch: LatencySketch, max_failed_ratio: float) -> bool:
    """Whether a larger part of the requests failed than may, of enough to compare."""
    requests = sketch.count + sketch.errors
    return requests >= REQUESTS_MIN and sketch.errors > max_failed_ratio * requests


def surely_failing(sketch: LatencySketch, max_failed_ratio: float) -> bool:
    """The same by more than chance, so that no single failure changes what a policy does: by
    `SIGMAS` standard errors of a count (binomial)."""
    if not is_failing(sketch, max_failed_ratio):
        return False
    requests, errors = sketch.count + sketch.errors, sketch.errors
    chance = SIGMAS * math.sqrt(errors * (1.0 - errors / requests))
    return errors - chance > max_failed_ratio * requests


def too_many_fail(max_failed_ratio: float) -> str:
    """Why its latency says nothing; the text does not change with each request."""
    return f"more than {render_percent(max_failed_ratio)} of the job's requests fail"


def failing(job: JobView) -> str | None:
    """Why its latency target is not met, however quick its answers are; None: failures are few."""
    recent, most = job.progress.recent, job.max_failed_ratio
    if not isinstance(job.spec.target, LatencyTarget) or not is_failing(recent, most):
        return None
    ratio = recent.errors / (recent.count + recent.errors)
    return f"{render_percent(ratio)} of requests fail, at most {render_percent(most)} may"


def bounds_of_latency(job: JobView) -> Bounds | None:
    """Between which latencies the one of its target lies, or the mean; None: unknown."""
    target = job.spec.target
    if isinstance(target, AccuracyTarget):
        return None
    return bounds_of(job.progress.recent, None if target is None else target.quantile)


def latency_of(job: JobView) -> tuple[float | None, float | None]:
    """The job's latency in seconds, and its ratio to the target; None: unknown. Of a latency that
    is known within bounds, the ratio is that of the bound next to the target; while too many
    requests fail, there is none."""
    recent, target, bounds = job.progress.recent, job.spec.target, bounds_of_latency(job)
    if bounds is None:
        return None, None
    latency_s = bounds.highest_s if bounds.is_exact else None
    if not isinstance(target, LatencyTarget) or recent.count < REQUESTS_MIN:
        return latency_s, None
    if is_failing(recent, job.max_failed_ratio):
        return latency_s, None
    judged_s = bounds.against(target.seconds)
    return latency_s, None if judged_s is None else judged_s / target.seconds


def unclear(target: Target | None, recent: LatencySketch) -> str | None:
    """Why a latency may be on either side of its target, with the remedy; None: it is on one side,
    or too few requests came. The text names buckets alone, so that it does not change with each
    request."""
    if not isinstance(target, LatencyTarget):
        return None
    bounds = bounds_of(recent, target.quantile)
    if recent.count < REQUESTS_MIN or bounds is None or bounds.against(target.seconds) is not None:
        return None
    asked = render_seconds(target.seconds)
    if recent.missed and against_target_s(replace(recent, missed=0), target) is not None:
        what = "the mean" if target.quantile is None else render_quantile(target.quantile)
        return (
            f"whether {what} is above {asked} is not known: some packets at the job's sockets "
            "were not read"
        )
    if target.quantile is None:
        return (
            f"whether the mean is above {asked} is not known: the sum of latencies on the job's "
            "metrics page is rounded, or contradicts its buckets"
        )
    stat = render_quantile(target.quantile)
    edges = quantile_bounds(recent, target.quantile, by_sum=False)
    if not recent.spans or edges is None:
        remedy = f"read a histogram with a bound at {asked}, or set a target for the mean"
        return f"only the mean is known, not {stat}: {remedy}"
    lowest, highest = (render_seconds(one) for one in edges)
    where = f"above {lowest}" if edges.most_s is None else f"between {lowest} and {highest}"
    return (
        f"{stat} is {where}: the buckets are too coarse for {asked}; give them a bound at {asked}"
    )


def lacking(target: Target | None, progress: Progress) -> str | None:
    """What a training reports in place of its target's metric, which never came; None: it came, or
    nothing did. The text names nothing that the container chose."""
    if not isinstance(target, AccuracyTarget) or progress.lacks is None:
        return None
    steps = bool(progress.samples) and progress.samples[-1].step is not None
    return f"the job reports{' steps' if steps else ''}, but never `{target.metric}`"


def lacking_in_full(target: Target | None, progress: Progress) -> str | None:
    """As `lacking`, with the names that came instead and the remedy."""
    what, lacks, log = lacking(target, progress), progress.lacks, progress.log
    if what is None or lacks is None or not isinstance(target, AccuracyTarget):
        return None
    found = closest(target.metric, (*lacks.names, *(() if log is None else log.named)))
    remedy = "name one of them as the target's `metric`" if found else "report it"
    if log is not None:
        remedy = "read one by a `pattern` of your own"
    others = f"found: {', '.join(found)}" if found else "no other metric is reported either"
    return f"{what}; {others}: {remedy}"


def metric_of(job: JobView) -> float | None:
    """The last value of its accuracy target's metric; None: unknown."""
    target = job.spec.target
    if not isinstance(target, AccuracyTarget):
        return None
    samples = (dict(sample.metrics) for sample in reversed(job.progress.samples))
    return next((one[target.metric] for one in samples if target.metric in one), None)

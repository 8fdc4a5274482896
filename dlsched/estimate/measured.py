"""What is compared with a job's target, as pages show it and the journal keeps it."""

from __future__ import annotations

from dlsched.estimate.sketch import Bounds, bounds_of
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.state import JobView
from dlsched.model.units import render_seconds
from dlsched.report.buckets import LONGEST_S

REQUESTS_MIN = 5
"""A latency of fewer requests is not compared with its target."""


def bounds_of_latency(job: JobView) -> Bounds | None:
    """Between which latencies the one of its target lies, or the mean; None: unknown."""
    target = job.spec.target
    if isinstance(target, AccuracyTarget):
        return None
    return bounds_of(job.progress.recent, None if target is None else target.quantile)


def latency_of(job: JobView) -> tuple[float | None, float | None]:
    """The job's latency in seconds, and its ratio to the target; None: unknown. Of a latency that
    is known within bounds, the ratio is that of the bound next to the target."""
    recent, target, bounds = job.progress.recent, job.spec.target, bounds_of_latency(job)
    if bounds is None:
        return None, None
    latency_s = bounds.highest_s if bounds.is_exact else None
    if not isinstance(target, LatencyTarget) or recent.count < REQUESTS_MIN:
        return latency_s, None
    judged_s = latency_s or bounds.against(target.seconds)
    return latency_s, None if judged_s is None else judged_s / target.seconds


def bounds_text(bounds: Bounds) -> str:
    """`between 25 ms and 50 ms`, `at most 100 ms`, `more than 1.00 s`."""
    lowest, highest = (render_seconds(one) for one in bounds)
    if bounds.highest_s >= LONGEST_S:
        return f"more than {lowest}"
    return f"between {lowest} and {highest}" if bounds.lowest_s > 0.0 else f"at most {highest}"


def metric_of(job: JobView) -> float | None:
    """The last value of its accuracy target's metric; None: unknown."""
    target = job.spec.target
    if not isinstance(target, AccuracyTarget):
        return None
    samples = (dict(sample.metrics) for sample in reversed(job.progress.samples))
    return next((one[target.metric] for one in samples if target.metric in one), None)

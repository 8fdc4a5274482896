"""What is compared with a job's target, as pages show it and the journal keeps it."""

from __future__ import annotations

from dlsched.estimate.sketch import measured_s
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView

REQUESTS_MIN = 5
"""A latency of fewer requests is not compared with its target."""


def latency_of(job: JobView) -> tuple[float | None, float | None]:
    """The job's latency in seconds, and its ratio to the target; None: unknown."""
    recent, target = job.progress.recent, job.spec.target
    if isinstance(target, AccuracyTarget):
        return None, None
    latency_s = measured_s(recent, None if target is None else target.quantile)
    if target is None or latency_s is None or recent.count < REQUESTS_MIN:
        return latency_s, None
    return latency_s, latency_s / target.seconds


def metric_of(job: JobView) -> float | None:
    """The last value of its accuracy target's metric; None: unknown."""
    target = job.spec.target
    if not isinstance(target, AccuracyTarget):
        return None
    samples = (dict(sample.metrics) for sample in reversed(job.progress.samples))
    return next((one[target.metric] for one in samples if target.metric in one), None)

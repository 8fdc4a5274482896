"""False reports, as a lying or hanging job would write."""

from __future__ import annotations

import math
from dataclasses import replace

from dlsched.model.facts import LatencySketch, Report, Sample
from dlsched.report.buckets import GROWTH, LAST_BUCKET


def falsified(line: Report, factor: float) -> Report:
    latency, sample = line.latency, line.sample
    if latency is not None:
        shift = round(math.log(factor) / math.log(GROWTH))
        moved: dict[int, int] = {}
        for bucket, count in latency.buckets:
            there = min(LAST_BUCKET, max(0, bucket + shift))
            moved[there] = moved.get(there, 0) + count
        latency = LatencySketch(
            latency.count, latency.sum_s * factor, tuple(sorted(moved.items())), latency.errors
        )
    if sample is not None:
        metrics = tuple((name, value * factor) for name, value in sample.metrics)
        sample = Sample(sample.received_s, sample.step, metrics)
    return replace(line, latency=latency, sample=sample)


def repeated(line: Report, at_s: float) -> Report:
    sample = None if line.sample is None else replace(line.sample, received_s=at_s)
    return replace(line, received_s=at_s, sample=sample)

"""`/metrics`: every metric by name, labels and meaning; counters that the loop keeps; the page."""

from __future__ import annotations

from dlsched.api.metrics.cluster import CLUSTER_METRICS
from dlsched.api.metrics.jobs import JOB_METRICS
from dlsched.api.metrics.metric import Metric
from dlsched.api.metrics.node import GPU_METRICS, NODE_METRICS

METRICS: tuple[Metric, ...] = (
    *NODE_METRICS,
    *JOB_METRICS,
    *GPU_METRICS,
    *CLUSTER_METRICS,
)
"""Every metric of the page, in its order."""

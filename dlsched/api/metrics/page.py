"""The page `/metrics`: collected at most once a cycle, and only when asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.metrics import METRICS
from dlsched.api.metrics.metric import JOBS_MAX, Kind, Metric, Scene, Series
from dlsched.api.metrics.totals import BOUNDS_S, Histogram, Totals
from dlsched.api.schema import JobStatus
from dlsched.api.status import node_status
from dlsched.model.errors import DlschedError
from dlsched.model.state import JobState

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

LABEL_CHARACTERS = 128
"""Of a label's value at most. A job's name has 63."""


class MetricsPage:
    """Renders the last cycle. Safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[Totals | None, bytes] = (None, b"")
        """The page, and what it was rendered from."""

    def render(
        self, totals: Totals, cluster: Callable[[], ClusterStatus | None] = lambda: None
    ) -> bytes:
        """The page. Callers that come together wait for one rendering."""
        with self._lock:
            totals_then, page = self._last
            if totals_then is not totals:
                status = node_status(totals.report)
                scene = Scene(totals, status, _with_series(status.jobs), _readable(cluster))
                registry = CollectorRegistry(auto_describe=False)
                registry.register(_LastCycle(scene))
                page = generate_latest(registry)
                self._last = (totals, page)
            return page


class _LastCycle(Collector):
    """All metrics of one cycle."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def collect(self) -> Iterable[Family]:
        """Every metric that has a series."""
        filled = (_FAMILIES[one.kind](one, one.read(self._scene)) for one in METRICS)
        return (family for family in filled if family.samples)


def _readable(cluster: Callable[[], ClusterStatus | None]) -> ClusterStatus | None:
    try:
        return cluster()
    except DlschedError:  # the figures of the node are not lost for it
        return None


def _with_series(jobs: Sequence[JobStatus]) -> tuple[JobStatus, ...]:
    """The jobs that have series of their own: first those that occupy something."""
    return tuple(sorted(jobs, key=lambda job: not JobState(job.state).holds)[:JOBS_MAX])


def _plain(
    make: Callable[..., GaugeMetricFamily | CounterMetricFamily],
) -> Callable[[Metric, Iterable[Series]], Family]:
    def filled(metric: Metric, series: Iterable[Series]) -> Family:
        made = make(metric.full_name, metric.meaning, labels=metric.labels)
        for labels, value in series:
            assert not isinstance(value, Histogram)
            made.add_metric(_texts(labels), float(value))
        return made

    return filled


def _histogram(metric: Metric, series: Iterable[Series]) -> Family:
    made = HistogramMetricFamily(metric.full_name, metric.meaning, labels=metric.labels)
    for labels, value in series:
        assert isinstance(value, Histogram)
        bounds = (*map(str, BOUNDS_S), "+Inf")
        buckets = list(zip(bounds, map(float, accumulate(value.counts)), strict=True))
        made.add_metric(_texts(labels), buckets, value.sum_s)
    return made


def _info(metric: Metric, series: Iterable[Series]) -> Family:
    made = InfoMetricFamily(metric.full_name.removesuffix("_info"), metric.meaning)
    for labels, _ in series:
        made.add_metric((), dict(zip(metric.labels, _texts(labels), strict=True)))
    return made


_FAMILIES: Mapping[Kind, Callable[[Metric, Iterable[Series]], Family]] = {
    Kind.GAUGE: _plain(GaugeMetricFamily),
    Kind.COUNTER: _plain(CounterMetricFamily),
    Kind.HISTOGRAM: _histogram,
    Kind.INFO: _info,
}


def _texts(labels: Sequence[str]) -> list[str]:
    """Values of labels, bounded, and text: half of a surrogate pair could not be encoded."""
    return [one[:LABEL_CHARACTERS].encode(errors="backslashreplace").decode() for one in labels]

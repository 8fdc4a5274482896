"""The metrics to read of an endpoint that names none: the target's, or those of known servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from dlsched.config.metrics.loading import package_presets
from dlsched.model.sources import LabelFilter, Metric, MetricsEndpoint

KNOWN_SERVERS = ("vllm", "triton")
"""Presets whose metrics belong to one server alone, so that they are known without a name."""


PATH_LABELS = ("endpoint", "handler", "http_route", "http_target", "path", "route", "uri", "url")
"""Labels in which servers and clients of Prometheus put a request's path."""
PROBES = r"(/v2)?/(metrics|health|healthz|healthcheck|health_check|health/.*|live|livez|liveness)/?"
PROBES += r"|(/v2)?/(ready|readyz|readiness|ping)/?"
"""Paths that are asked by those who watch a service, not by those who use it."""


def named(endpoint: MetricsEndpoint, target: str | None) -> tuple[Metric, ...]:
    """The metrics to look for, each with a name, or with total and count; without filters of their
    own, they leave out scrapes and health checks. `target`: the target's metric."""
    probes = f"{PROBES}|{re.escape(endpoint.http_path)}"
    unwatched = tuple(LabelFilter(label, probes, True) for label in PATH_LABELS)
    found = _named(endpoint.metrics, target)
    return tuple(replace(one, where=one.where or unwatched) for one in found)


def _named(metrics: Sequence[Metric], target: str | None) -> tuple[Metric, ...]:
    if any(one.name or one.total for one in metrics):
        return tuple(metrics)
    candidates = (Metric(name=target),) if target else known_metrics()
    given = metrics[0] if metrics else Metric()
    return tuple(
        replace(
            one,
            errors=given.errors or one.errors,
            unit_s=given.unit_s or one.unit_s,
            where=given.where or one.where,
            per=given.per or one.per,
        )
        for one in candidates
    )


@cache
def known_metrics() -> tuple[Metric, ...]:
    """The metrics of known servers, in the order in which they are looked for."""
    presets = package_presets()
    keys = (presets.by_name[name].keys for name in KNOWN_SERVERS)
    sources = (source for one in keys for source in presets.sources(one))
    return tuple(
        metric
        for source in sources
        if isinstance(source, MetricsEndpoint)
        for metric in source.metrics
    )

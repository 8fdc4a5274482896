"""The observation by which a service's latency model is updated."""

from __future__ import annotations

from typing import NamedTuple

from dlsched.model.facts import LatencySketch


class ServiceSample(NamedTuple):
    """Observation of a service between two of its reports."""

    sketch: LatencySketch
    """At least one request."""
    cpu_core_s: float | None
    """CPU time of these requests; None: unread, or some reports of requests are missing."""
    elapsed_s: float
    ceiling_cores: float | None
    """None: it had no ceiling."""
    throttled: bool
    """The ceiling was binding all the time."""
    free: bool
    """Neither the ceiling nor other jobs slowed it down at any time."""
    one_ceiling: bool
    """One ceiling applied all the time; other jobs may have slowed it down."""
    in_flight: int
    used_cores: float | None = None
    """Mean use, also where the CPU time of exactly these requests is unknown."""

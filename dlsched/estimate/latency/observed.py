"""What one update of a service's latency model rests on."""

from __future__ import annotations

from typing import NamedTuple

from dlsched.model.facts import LatencySketch


class Seen(NamedTuple):
    """What was observed of a service between two of its reports."""

    sketch: LatencySketch
    """At least one request."""
    cpu_core_s: float | None
    """CPU time used for them; None: unread, or other requests' reports are missing."""
    elapsed_s: float
    ceiling_cores: float | None
    """None: it had no ceiling."""
    throttled: bool
    """The ceiling held it back all along."""
    free: bool
    """Neither the ceiling nor others held it back at any time."""
    steady: bool
    """It was under that one ceiling all along, if perhaps held back by others."""
    in_flight: int
    used_cores: float | None = None
    """Mean cores, where the CPU time of just these requests is not known."""

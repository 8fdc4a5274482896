"""A job's latencies as they are measured at its sockets, beside what it reports itself."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.facts import Report
from dlsched.model.spec import LatencyTarget
from dlsched.runtime.wire.tap import PortTraffic, Tap, Watched

OWN_SILENT_S = 60.0
"""A job that reported latencies within this time is judged by them, and not by its sockets."""

_KINDS = {"answer": "whole", "first-byte": "first", "gap": "gaps"}


@dataclass(frozen=True, slots=True)
class WireReading:
    """What one read found."""

    reports: tuple[Report, ...] = ()
    """Of the kind that the target is about."""
    problem: str | None = None
    """Why its sockets are not measured now, in one line."""
    traffic: tuple[PortTraffic, ...] = ()


class WireReader:
    """Reads one start of a container."""

    def __init__(
        self, tap: Tap, pid: int, container: str, ports: tuple[int, ...], target: LatencyTarget
    ) -> None:
        """`ports`: (): all on which it listens."""
        self._tap = tap
        self._watched: Watched = tap.watch(pid, container, ports)
        self._kind = _KINDS[target.of]

    def read(self, now_s: float) -> WireReading:
        """What was measured since the previous read."""
        traffic = self._watched.take(now_s)
        reports = tuple(
            report
            for port in traffic
            for report in getattr(port, self._kind)
            if report.latency is not None
        )
        return WireReading(reports, self._watched.problem or self._tap.problem, traffic)

    def close(self) -> None:
        self._watched.close()

"""One container as the loop sees it: the engine's description, the kernel's counts, its progress.

Owns the descriptors and the progress sources of one container, opened once for each of its starts.
It must not call the engine: all of this goes on while the engine hangs or is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from dlsched.model import AccuracyTarget, ContainerFact, Limits, Report
from dlsched.runtime.cgroup import PROC, CgroupReader, CgroupReading, belongs
from dlsched.runtime.docker.labels import Inspected
from dlsched.runtime.limits import (
    quota_cores,
)
from dlsched.runtime.log_pattern import LogReader, LogStream
from dlsched.runtime.scrape import ScrapeReader
from dlsched.runtime.sidecar import Reading, SidecarReader
from dlsched.runtime.sources import LogPattern, MetricsEndpoint, MetricsFile, Source

Follow = Callable[[str, float | None], LogStream]
"""Opens a container's output from that wall time on (None: from now on); raises DlschedError."""


class Watch:
    """One container, from its first listing to its last; to be closed."""

    def __init__(
        self, described: Inspected, now_s: float, follow: Follow, *, from_end: bool
    ) -> None:
        """`from_end`: it ran before we looked, so nothing that it has told yet can be dated."""
        self._described = described
        self._follow = follow
        self._cgroup: CgroupReader | None = None
        self._sources: tuple[Source, ...] = ()
        self._leaving: tuple[LogReader, ...] = ()
        """Of a start that is over: its last lines may still be on their way from the engine."""
        self._left_at_s = float("-inf")
        self._reading = CgroupReading()
        self._started_at_s: float | None = None
        self._drained: list[Report] = []
        self._bad_lines = 0
        self._trouble: str | None = None
        if described.alive:
            self._open(now_s, from_end=from_end)

    @property
    def described(self) -> Inspected:
        """What the engine last said of it."""
        return self._described

    @property
    def reader(self) -> CgroupReader | None:
        """Its cgroup, while it runs."""
        return self._cgroup

    def take(self, described: Inspected, now_s: float) -> None:
        """The engine describes it anew: follow a new start, or read an ended one's last lines."""
        before, self._described = self._described, described
        if before.start == described.start and before.alive == described.alive:
            return
        if before.alive:
            self._end(now_s)
        if described.alive:
            self._open(now_s, from_end=False)

    def fact(self, now_s: float, operation: str | None) -> tuple[ContainerFact, bool]:
        """The container now, and whether it has ended without the engine having told us yet."""
        vanished = False
        if self._cgroup is not None:
            reading = self._cgroup.read()
            if reading.gone:
                vanished = self._cgroup.opened
            else:
                self._reading = reading
        self._read_sources(now_s)
        reports, self._drained = tuple(self._drained), []
        return self._fact(reports, operation), vanished

    def close(self) -> None:
        """Let go of every descriptor."""
        if self._cgroup is not None:
            self._cgroup.close()
        for source in (*self._sources, *self._leaving):
            source.close()
        self._cgroup, self._sources, self._leaving = None, (), ()

    def _fact(self, reports: tuple[Report, ...], operation: str | None) -> ContainerFact:
        told, seen = self._described, self._reading
        limit_cores = told.limit_cores
        if seen.quota_us is not None:
            limit_cores = quota_cores(seen.quota_us, seen.period_us)
        fact = ContainerFact(
            job=told.job,
            container_id=told.container_id,
            state=told.state,
            container_digest=told.container_digest,
            digest=told.digest,
            adopted=told.adopted,
            source=told.source,
            origin=told.origin,
            stop=told.stop,
            started_at_s=self._started_at_s,
            starts=told.restarts + 1,
            exit_code=told.exit_code,
            oom_killed=told.oom_killed,
            error=told.error,
            actual=Limits(limit_cores),
            usage_core_s=seen.usage_core_s,
            periods=seen.periods,
            throttled_periods=seen.throttled_periods,
            reports=reports,
            bad_lines=self._bad_lines,
            sidecar_trouble=self._trouble,
            has_source=bool(told.sources),
            operation=operation,
        )
        if self._cgroup is None:
            return fact
        return replace(
            fact,
            cpu_shares=seen.shares,
            burst_cores=seen.burst_us / seen.period_us
            if seen.burst_us is not None and seen.period_us
            else None,
            memory_bytes=seen.memory_bytes,
            cpu_pressure_ratio=seen.cpu_pressure_ratio,
        )

    def _open(self, now_s: float, *, from_end: bool) -> None:
        self._reading = CgroupReading()
        self._started_at_s = now_s
        self._bad_lines, self._trouble = 0, None
        self._cgroup = CgroupReader(self._described.pid, container=self._described.container_id)
        self._sources = tuple(open_sources(self._described, self._follow, from_end=from_end))

    def _end(self, now_s: float) -> None:
        self._read_sources(now_s)
        leaving = tuple(source for source in self._sources if isinstance(source, LogReader))
        self._sources = tuple(source for source in self._sources if source not in leaving)
        self.close()
        self._leaving, self._left_at_s = leaving, now_s

    def _read_sources(self, now_s: float) -> None:
        if self._leaving and now_s > self._left_at_s:
            for log in self._leaving:
                self._take_up(log.read(now_s))
                log.close()
            self._leaving = ()
        if self._sources:
            readings = [source.read(now_s) for source in self._sources]
            for reading in readings:
                self._take_up(reading)
            troubles = (one.trouble for one in readings if one.trouble is not None)
            self._trouble = next(troubles, None)

    def _take_up(self, reading: Reading) -> None:
        self._drained.extend(reading.reports)
        self._bad_lines += reading.bad_lines


def open_sources(described: Inspected, follow: Follow, *, from_end: bool) -> Iterator[Source]:
    """What reads the progress of this start of a container."""
    container, pid = described.container_id, described.pid
    for source in described.sources:
        match source:
            case MetricsFile(path):
                yield SidecarReader(
                    pid, path, PROC, expect=lambda: belongs(pid, container), from_end=from_end
                )
            case MetricsEndpoint(port, http_path, name):
                metric = _metric(described)
                yield ScrapeReader(
                    described.address, port, http_path, name, metric, from_end=from_end
                )
            case LogPattern(pattern):
                yield LogReader(
                    lambda from_start: follow(
                        container, _wall_s(described.started_at) if from_start else None
                    ),
                    pattern,
                    from_end=from_end,
                )


def _metric(described: Inspected) -> str | None:
    target = described.adopted.target if described.adopted is not None else None
    return target.metric if isinstance(target, AccuracyTarget) else None


def _wall_s(started_at: str) -> float | None:
    try:
        return datetime.fromisoformat(started_at).timestamp()
    except ValueError:
        return None

"""One container as the loop sees it: the engine's description, the kernel's counts, the sidecar.

Owns the descriptors of one container, opened once for each of its starts. It must not call the
engine: all of this goes on while the engine hangs or is gone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlsched.model import ContainerFact, Limits, Report
from dlsched.runtime.allotment import METRICS_FILE
from dlsched.runtime.cgroup import PROC, CgroupReader, CgroupReading
from dlsched.runtime.docker.labels import Inspected
from dlsched.runtime.limits import quota_cores
from dlsched.runtime.sidecar import SidecarReader


class Watch:
    """One container, from its first listing to its last; to be closed."""

    def __init__(self, described: Inspected, now_s: float, *, from_end: bool) -> None:
        """`from_end`: it ran before we looked, so nothing that it has told yet can be dated."""
        self._described = described
        self._cgroup: CgroupReader | None = None
        self._sidecar: SidecarReader | None = None
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
            self._drain(now_s)
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
        if self._sidecar is not None:
            self._read_sidecar(self._sidecar, now_s)
        reports, self._drained = tuple(self._drained), []
        return self._fact(reports, operation), vanished

    def close(self) -> None:
        """Let go of every descriptor."""
        if self._cgroup is not None:
            self._cgroup.close()
        if self._sidecar is not None:
            self._sidecar.close()
        self._cgroup = self._sidecar = None

    def _fact(self, reports: tuple[Report, ...], operation: str | None) -> ContainerFact:
        told, seen = self._described, self._reading
        quota, period = seen.quota_us, seen.period_us
        if quota is None:
            quota, period = told.quota_us, told.period_us
        fact = ContainerFact(
            job=told.job,
            container_id=told.container_id,
            state=told.state,
            container_digest=told.container_digest,
            digest=told.digest,
            source=told.source,
            stop=told.stop,
            started_at_s=self._started_at_s,
            starts=told.restarts + 1,
            exit_code=told.exit_code,
            oom_killed=told.oom_killed,
            error=told.error,
            actual=Limits(quota_cores(quota, period)),
            usage_core_s=seen.usage_core_s,
            periods=seen.periods,
            throttled_periods=seen.throttled_periods,
            reports=reports,
            bad_lines=self._bad_lines,
            sidecar_trouble=self._trouble,
            operation=operation,
        )
        if self._cgroup is None:
            return fact
        return replace(
            fact,
            cpu_shares=seen.shares,
            memory_bytes=seen.memory_bytes,
            cpu_pressure_ratio=seen.cpu_pressure_ratio,
        )

    def _open(self, now_s: float, *, from_end: bool) -> None:
        container, pid = self._described.container_id, self._described.pid
        self._reading = CgroupReading()
        self._started_at_s = now_s
        self._bad_lines, self._trouble = 0, None
        self._cgroup = CgroupReader(pid)
        self._sidecar = SidecarReader(
            pid, METRICS_FILE, PROC, expect=lambda: belongs(pid, container), from_end=from_end
        )

    def _drain(self, now_s: float) -> None:
        if self._sidecar is not None:
            self._read_sidecar(self._sidecar, now_s)
        self.close()

    def _read_sidecar(self, sidecar: SidecarReader, now_s: float) -> None:
        reading = sidecar.read(now_s)
        self._drained.extend(reading.reports)
        self._bad_lines += reading.bad_lines
        self._trouble = reading.trouble


def belongs(pid: int, container: str, proc: Path = PROC) -> bool:
    """Whether this process is in the group of that container."""
    try:
        return container in (proc / str(pid) / "cgroup").read_text(encoding="utf-8")
    except OSError:
        return False

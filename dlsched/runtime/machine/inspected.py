"""Containers as the engine listed and described them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.model.alarms import Alarm
from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.sources import MetricsFile, ProgressSource
from dlsched.model.spec import JobSpec, Restart, Stop
from dlsched.runtime.allotment import METRICS_FILE
from dlsched.runtime.originals import EngineLimits

RUNS = frozenset({ContainerState.RUNNING, ContainerState.RESTARTING, ContainerState.PAUSED})
"""A container in one of these has not ended."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """One container of ours, or adopted, as the engine described it."""

    container_id: str
    name: str
    image: str
    instance: str | None
    job: str
    digest: str
    container_digest: str
    source: str
    stop: Stop
    state: ContainerState
    pid: int
    started_at: str
    """The engine's time stamp, which distinguishes starts."""
    exit_code: int | None
    oom_killed: bool
    error: str | None
    restarts: int
    limits: EngineLimits
    ended_at: str = ""
    """The engine's time stamp of the last end: while it runs, of the start before."""
    adopted: JobSpec | None = None
    """The job in its labels, if another program started it."""
    sources: tuple[ProgressSource, ...] = (MetricsFile(METRICS_FILE),)
    """Where its progress can be read."""
    address: str | None = None
    """Its own IP address; None: it shares another's network, or has none."""
    network_of: str | None = None
    """The container whose network it shares; None: none's."""
    restart: Restart | None = None
    """The restart policy of its spec; None: unknown."""
    restart_strays: bool = False
    """Whether the engine's restart policy differs."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs; for another program's container also indices, nodes, `all`."""
    gpu_access: GpuAccess | None = None
    mps_threads_percent: int | None = None
    mps_memory_bytes: int | None = None
    origin: str | None = None
    """The first container of a moved job; None: this one."""

    @property
    def alive(self) -> bool:
        """Whether it has a process now."""
        return self.pid > 0 and self.state in (ContainerState.RUNNING, ContainerState.PAUSED)

    @property
    def risks_gpus(self) -> bool:
        """Whether an engine update might take its GPUs away: only `LimitWriter` may update it."""
        return self.gpu_access is not None and self.alive

    @property
    def limit_cores(self) -> float | None:
        """The ceiling in the engine's configuration; None: none."""
        return self.limits.cpu_cores

    @property
    def start(self) -> tuple[int, str]:
        """Identifies this start of the container."""
        return self.pid, self.started_at


@dataclass(frozen=True, slots=True)
class Listing:
    """Our containers at one moment."""

    at_s: float
    """When it was asked for (of the clock that `now_s` comes from)."""
    containers: Mapping[str, Inspected] = field(default_factory=dict)
    set_aside: Mapping[str, Inspected] = field(default_factory=dict)
    """Ours too, but not what stands for their jobs: others have taken their place, or are to."""
    left_alone: tuple[Alarm, ...] = ()
    """Containers with labels of ours that are not touched, each with the reason."""
    named: frozenset[str] = frozenset()
    """Every job that a container is labelled as, one that is left alone too."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Names of the containers that `want_names` asked for, by ID."""
    undescribed: frozenset[str] = frozenset()
    """IDs of containers that are there, but that the engine has never described: being started, or
    too slow."""

    @property
    def all(self) -> dict[str, Inspected]:
        return {**self.containers, **self.set_aside}

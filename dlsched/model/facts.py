"""What the runtime finds: containers, GPUs and the node, as the engine and the kernel tell them.

Owns the facts of one observation. It must not do anything: no I/O, no clock, no Docker, no
arithmetic beyond what a type needs to describe itself. Units are in the names: `_s` seconds,
`_bytes`, `_cores`, `_core_s`, `_ratio` 0 to 1. `None` means unread or unbounded, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dlsched.model.alarms import Alarm
from dlsched.model.spec import JobSpec, Limits, Stop


@dataclass(frozen=True, slots=True)
class LatencySketch:
    """Latencies as counts in logarithmic buckets; `estimate.sketch` merges and reads it.

    Bucket i counts seconds in (g^(i-1), g^i] x 1e-6 with g = 1.01/0.99, so that any quantile is
    read within 1 % of its value.
    """

    count: int = 0
    sum_s: float = 0.0
    buckets: tuple[tuple[int, int], ...] = ()
    """(bucket index, count), sorted by index."""
    errors: int = 0

    @property
    def mean_s(self) -> float | None:
        """Mean latency in seconds; None without a request."""
        return self.sum_s / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Sample:
    """One training report: the step, and every metric that came with it."""

    received_s: float
    step: int | None
    metrics: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class CheckpointAck:
    """A job's word that it has saved itself at that step, and where."""

    step: int
    path: str


class ComputeMode(StrEnum):
    """Who may use a GPU at the same time, as its driver is set."""

    DEFAULT = "default"
    EXCLUSIVE = "exclusive-process"
    PROHIBITED = "prohibited"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process that uses a GPU."""

    pid: int
    """On the host."""
    container_id: str | None = None
    """None: it is in no container."""
    memory_bytes: int | None = None
    busy_ratio: float | None = None
    """Part of the GPU's time that it used since the reading before."""


@dataclass(frozen=True, slots=True)
class GpuFact:
    """One GPU, or one MIG instance of a GPU that is divided so, as the driver tells it now."""

    uuid: str
    index: int
    """The driver's order; of an instance, its GPU's."""
    model: str
    """Product name."""
    memory_bytes: int
    memory_used_bytes: int | None = None
    busy_ratio: float | None = None
    """Part of the last sampling period in which it computed. None on MIG: unknown is not idle."""
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    part_of: str | None = None
    """The UUID of the GPU that a MIG instance is part of."""
    numa_node: int | None = None
    nodes: tuple[str, ...] = ()
    """Its device nodes on the host, such as /dev/nvidia0."""
    processes: tuple[GpuProcess, ...] = ()
    trouble: str | None = None
    """Why it cannot be used now, in one line; None: it can."""


class GpuAccess(StrEnum):
    """How GPUs reached a container. It tells whether a CPU update can take them away again."""

    CDI = "cdi"
    RUNTIME = "runtime"
    """The nvidia runtime in its CDI mode."""
    NODES = "nodes"
    """Device nodes named one by one."""
    LEGACY = "legacy"
    """A hook behind the engine's back: an update through the engine loses them."""


class ContainerState(StrEnum):
    """A container's state in the engine's words."""

    CREATED = "created"
    RUNNING = "running"
    RESTARTING = "restarting"
    PAUSED = "paused"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"


class OperationKind(StrEnum):
    """What a runtime does to a container."""

    STOPPING = "stopping"
    REMOVING = "removing"
    UPDATING = "updating"
    """Its limits are being changed."""
    MOVING = "moving"
    """Its job moves to other GPUs."""
    REFUSED = "refused"
    """Nothing: its limits cannot be changed, and are left as they are."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a runtime is doing to a container, and what people read of it."""

    kind: OperationKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ContainerFact:
    """One container of this instance as it is now."""

    job: str
    container_id: str
    state: ContainerState
    container_digest: str
    digest: str
    """`JobSpec.digest` at the time of creation."""
    adopted: JobSpec | None = None
    """What its labels ask for, if somebody else started it: only its limits are ours to change."""
    source: str = ""
    """The job file that it was made from."""
    stop: Stop = Stop()
    """As written into the container, for when its job file is gone."""
    started_at_s: float | None = None
    """When the agent first saw this start (monotonic)."""
    starts: int = 1
    """How often it was started, Docker's own restarts included."""
    exit_code: int | None = None
    oom_killed: bool = False
    error: str | None = None
    actual: Limits = Limits()
    """Read back from the kernel; the share of GPUs' time as it was last told to the job."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it was made with."""
    gpu_access: GpuAccess | None = None
    """None: it has no GPU."""
    gpu_enforced: tuple[tuple[str, str], ...] = ()
    """By what is bounded (`devices`, `time`, `memory`, `cpu`), what enforces it, in a few words;
    what is left out is advisory."""
    gpus_kept: tuple[str, ...] = ()
    """UUIDs of those beside `gpus` that it goes to, or may have to go back to, while it moves."""
    origin: str | None = None
    """The container that its work began in, before it was moved to other GPUs; None: this one."""
    gpu_lost: str | None = None
    """How this start of it lost its GPUs, in one line; None: it did not, as far as is known."""
    cpu_shares: int | None = None
    """Read back from the kernel; on cgroup v2 shares that its weight stands for. None: it has no
    weight, as in the idle class."""
    cpu_idle: bool | None = None
    """Whether it is in the kernel's idle class, read back; None where it cannot be put there."""
    burst_cores: float | None = None
    """Read back from the kernel; None where it cannot be set."""
    usage_core_s: float | None = None
    """CPU time of this start, in core-seconds, as the kernel counts it."""
    periods: int | None = None
    throttled_periods: int | None = None
    memory_bytes: int | None = None
    cpu_wait_ratio: float | None = None
    """Part of the time in which its threads wait for a CPU, over the last ten seconds or so."""
    reports: tuple[Report, ...] = ()
    """Sidecar lines that arrived since the observation before."""
    bad_lines: int = 0
    """Sidecar lines refused so far, for this start."""
    sidecar_trouble: str | None = None
    has_source: bool = True
    """Whether there is anything that its progress can be read from."""
    operation: Operation | None = None
    """What the runtime is doing to it now; None: nothing."""

    @property
    def life(self) -> str:
        """What one container is known by, and all that its job is moved through."""
        return self.origin or self.container_id


@dataclass(frozen=True, slots=True)
class Report:
    """One valid sidecar line, or what another source of progress told at once."""

    received_s: float
    writer: str = ""
    latency: LatencySketch | None = None
    in_flight: int | None = None
    oldest_s: float | None = None
    sample: Sample | None = None
    checkpoint: CheckpointAck | None = None
    gpu_ratio: float | None = None
    """Part of its GPUs' time that it used, by its own word."""
    span_s: float = 1.0
    """What it tells of ended within so long before it was received."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What `Runtime.apply` began for a job that has no container yet, or why it failed."""

    job: str
    stage: Literal["pulling", "pulled", "starting", "failed"]
    """`pulled` waits to be started again, under limits of that moment."""
    detail: str
    digest: str
    """`JobSpec.digest` that it was begun for: a failure holds only against that spec."""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """All facts of one moment. Unreadable is None, and never an exception for one job."""

    now_s: float
    engine_ok: bool
    engine_trouble: str | None = None
    containers: tuple[ContainerFact, ...] = ()
    begun: tuple[Begun, ...] = ()
    listing_age_s: float = 0.0
    """How old the engine's listing is: events are hints, a listing is the truth."""
    left_alone: tuple[Alarm, ...] = ()
    """Containers whose labels ask for us in vain, each with the reason."""
    host_busy_core_s: float | None = None
    """CPU time of everything on the host since boot, in core-seconds."""
    node: NodeFact | None = None


@dataclass(frozen=True, slots=True)
class NodeFact:
    """What the host has, before any reserve."""

    cores: float
    memory_bytes: int
    grain_cores: float = 0.001
    """Steps in which the engine keeps a CPU ceiling."""
    gpus: tuple[GpuFact, ...] = ()
    """In the driver's order."""
    gpu_trouble: str | None = None
    """Why GPUs cannot be seen, or not all of them; None: all is told, or there is no driver."""

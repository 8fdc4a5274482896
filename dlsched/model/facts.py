"""Facts of one observation: containers, GPUs and node, as engine, kernel and driver report them.
Units are in the names: `_s` seconds, `_bytes`, `_cores`, `_core_s`, `_ratio` 0 to 1. `None` means
unread or unbounded, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from dlsched.model.alarms import Alarm
from dlsched.model.bottleneck import WaitFact
from dlsched.model.spec import JobSpec, Limits, Stop


@dataclass(frozen=True, slots=True)
class LatencySketch:
    """A latency distribution as counts in logarithmic buckets; see `estimate.sketch`. Bucket i
    counts latencies in (g^(i-1), g^i] x 1e-6 seconds with g = 1.01/0.99, so any quantile has a
    relative error of at most 1 %."""

    count: int = 0
    sum_s: float = 0.0
    buckets: tuple[tuple[int, int], ...] = ()
    """(bucket index, count), sorted by index."""
    errors: int = 0
    """Requests that failed; none of them is in `count`."""
    spans: tuple[tuple[float, float, int], ...] = ()
    """(lowest, highest latency in seconds, count), sorted: requests of which only bounds are known,
    since a page counts them in wide buckets; the highest bound of all is `LONGEST_S`. A request
    that is neither here nor in `buckets` is known by its part of the sum alone."""
    missed: int = 0
    """Answers beyond `count` that were perhaps not measured, at most: nothing is known of them."""
    sum_error_s: float = 0.0
    """How far `sum_s` may be off, at most: a page may round it, or contradict it by its counts."""

    @property
    def mean_s(self) -> float | None:
        """Mean latency; None without a request."""
        return self.sum_s / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Sample:
    """One training report: the step and its metrics."""

    received_s: float
    step: int | None
    metrics: tuple[tuple[str, float], ...]
    """Finite values by name."""
    diverged: tuple[tuple[str, str], ...] = ()
    """Metrics whose value is `nan`, `inf` or `-inf`, with that word."""
    again: bool = False
    """Whether it is of the same evaluation as an earlier sample, as other ranks' values are."""


@dataclass(frozen=True, slots=True)
class LogFact:
    """What the pattern found in the lines that a container printed since this start."""

    lines: int = 0
    matched: int = 0
    example: str | None = None
    """While no line matches: the first one, escaped and short."""
    named: tuple[str, ...] = ()
    """While no line has a metric: names that stand before a number in them, the first few."""


@dataclass(frozen=True, slots=True)
class WireFact:
    """What is measured at a job's listening sockets; counts are of the last ten seconds."""

    ports: tuple[int, ...] = ()
    """Those that are measured; (): none."""
    problem: str | None = None
    """Why nothing is measured, in one line."""
    partial: str | None = None
    """Why some ports or interfaces are not, in one line."""
    judges: bool = False
    """Whether its latency target is judged by this, and not by what it reports itself."""
    requests_per_s: float = 0.0
    one_of: int = 1
    """Of so many connections one is measured."""
    lost: int = 0
    """Requests that are not measured: not captured whole, as where packets were dropped; or in TLS
    and not distinguished from its handshake."""
    dropped: int = 0
    """Packets of its interfaces for which the kernel had no room, be they its own or not."""
    missed_s: float = 0.0
    """Seconds that ended in this time and were not measured: the process that reads packets ended,
    or hung, and another one was started."""
    connections: tuple[tuple[str, int], ...] = ()
    """New connections that are measured, by protocol: http, tls, turns."""
    unmeasured: tuple[tuple[str, int], ...] = ()
    """Those that cannot be, by reason."""
    callers: tuple[tuple[str, float], ...] = ()
    """Who calls it, with requests a second: containers by name, others by address."""
    measured_s: float | None = None
    """The target's latency in the last minute; None: of too few requests."""
    unreported: int = 0
    """Answers in the last minute, where the job reports that there were none."""
    reported_s: tuple[float, float] | None = None
    """Between which latencies the job reports it to be, where `measured_s` contradicts that."""

    @property
    def measured_ratio(self) -> float | None:
        """Which part of the new connections is measured; None: there were none."""
        measured = sum(count for _, count in self.connections)
        whole = measured + sum(count for _, count in self.unmeasured)
        # One that is found to be unmeasured later is taken from those of another time.
        return min(max(measured / whole, 0.0), 1.0) if whole > 0 else None


@dataclass(frozen=True, slots=True)
class CheckpointAck:
    """A job's acknowledgement of a checkpoint: its step, and its path."""

    step: int
    path: str


class ComputeMode(StrEnum):
    """The driver's setting of who may use a GPU at the same time."""

    DEFAULT = "default"
    EXCLUSIVE = "exclusive-process"
    PROHIBITED = "prohibited"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process that uses a GPU."""

    pid: int
    """The process ID on the host."""
    container_id: str | None = None
    """None: the process is in no container, or not visible."""
    memory_bytes: int | None = None
    busy_ratio: float | None = None
    """Fraction of the GPU's time that it used since the previous reading."""
    computed: bool | None = None
    """Whether it used the GPU at all since the previous reading; None: unknown, as on MIG."""
    visible: bool = True
    """Whether the agent can see the process. If not, its container and user are unknown."""
    uid: int | None = None
    """The user that it runs as; None: it is in a container, or that cannot be read."""
    user: str | None = None
    """The name of that user; None: none is known."""


@dataclass(frozen=True, slots=True)
class GpuFact:
    """One GPU, or one MIG instance of a partitioned GPU, as the driver reports it."""

    uuid: str
    index: int
    """Position in the driver's order. A MIG instance has its GPU's index."""
    model: str
    """The product name."""
    memory_bytes: int
    """What programs can allocate."""
    memory_used_bytes: int | None = None
    busy_ratio: float | None = None
    """Fraction of the last sampling period in which it computed; None: unknown, as on MIG."""
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    part_of: str | None = None
    """The parent GPU's UUID, for a MIG instance."""
    numa_node: int | None = None
    nodes: tuple[str, ...] = ()
    """Device nodes on the host, such as /dev/nvidia0."""
    processes: tuple[GpuProcess, ...] = ()
    trouble: str | None = None
    """Why it cannot be used now, in one line; None: it can be used."""


class GpuAccess(StrEnum):
    """How a container got its GPUs. This decides whether a CPU update can take them away."""

    CDI = "cdi"
    RUNTIME = "runtime"
    """The nvidia runtime in its CDI mode."""
    NODES = "nodes"
    """Device nodes listed one by one."""
    LEGACY = "legacy"
    """A hook that the engine does not know of, so an update through the engine removes the GPUs."""


class ContainerState(StrEnum):
    """A container's state, with the engine's names."""

    CREATED = "created"
    RUNNING = "running"
    RESTARTING = "restarting"
    PAUSED = "paused"
    REMOVING = "removing"
    EXITED = "exited"
    DEAD = "dead"


class OperationKind(StrEnum):
    """The kind of a running operation on a container."""

    STOPPING = "stopping"
    REMOVING = "removing"
    UPDATING = "updating"
    """Its limits are being changed."""
    MOVING = "moving"
    """Its job moves to other GPUs, or leaves for another node."""
    REFUSED = "refused"
    """Not an operation: its limits cannot be changed, so they stay."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that the runtime performs on a container, with a text for people."""

    kind: OperationKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Usage:
    """A container's use of resources, from kernel and driver. None means unread, not zero. What is
    shown as it was read is filled in by its reader, in `ContainerFact.usage`, and goes from there
    to `JobView.usage` unnamed; the ledger adds means over time and what GPUs report."""

    cpu_cores: float | None = None
    """Mean since the previous cycle, or over half a second where that was sooner."""
    window_cores: float | None = None
    """Mean over the same time as `Progress.window`."""
    memory_bytes: int | None = None
    throttled_ratio: float | None = None
    """Fraction of the scheduling periods since the previous cycle that hit the quota."""
    cpu_wait_ratio: float | None = None
    """Fraction of about the last ten seconds in which its threads waited for a CPU."""
    gpu_ratio: float | None = None
    """Used fraction of its GPUs' time since the previous cycle, as a mean over them."""
    gpu_window_ratio: float | None = None
    """The same mean over the time of `Progress.window`."""
    gpu_memory_bytes: int | None = None
    """Sum over all of its GPUs."""


@dataclass(frozen=True, slots=True)
class MemoryFact:
    """A container's memory since this start, from its control group."""

    working_set_bytes: int | None = None
    """Use, without file pages that were not used lately."""
    held_bytes: int | None = None
    """Use, without all that the kernel can take back: no page cache."""
    limit_bytes: int | None = None
    """The smallest limit of its group and of those around it; None: none, or unknown."""
    peak_bytes: int | None = None
    """The most that was ever in use, page cache included; None: unknown, as on cgroup v2 before
    Linux 5.19."""
    oom_kills: int | None = None
    """Processes in it that the kernel killed for want of memory."""
    limit_reached: bool = False
    """Whether it was out of memory at its limit, so that a kill can be for that; False where that
    is unknown, as on cgroup v1."""
    own_bytes: int | None = None
    """The limit of its own group alone; None: none, or unknown."""
    before_bytes: int | None = None
    """Its own limit before dlsched first changed it; None: dlsched has not."""


@dataclass(frozen=True, slots=True)
class ThreadsFact:
    """How the threads of a container used CPU in one sample of about a second. A sample is taken
    only where the counts of its group make that worthwhile."""

    at_s: float
    """When the sample ended (monotonic)."""
    busy: int
    """Threads that used CPU, or waited for it, for a good part of the sample."""
    used_cores: float
    """Mean number of threads that computed."""
    waited_cores: float
    """Mean number of threads that could have computed, and waited for a CPU or for their quota."""
    spun_ratio: float | None = None
    """Fraction of the CPU time that was spent in loops that only wait; None: unknown."""
    spins_in: str = ""
    """File name of the library or program with most of these loops. A container chooses it."""


@dataclass(frozen=True, slots=True)
class ContainerFact:
    """One container of this instance, as observed."""

    job: str
    container_id: str
    state: ContainerState
    container_digest: str
    digest: str
    """`JobSpec.digest` at creation."""
    adopted: JobSpec | None = None
    """The spec in its labels, if someone else started it. Then only its limits may be changed."""
    source: str = ""
    """The job file that it was created from."""
    stop: Stop = Stop()
    """Stored in its labels, for when the job file is gone."""
    started_at_s: float | None = None
    """When the agent first observed this start (monotonic)."""
    starts: int = 1
    """Number of starts, including Docker's restarts."""
    exit_code: int | None = None
    oom_killed: bool = False
    error: str | None = None
    altered: bool = False
    """Whether it has other limits than its own ones, which dlsched keeps a record of."""
    actual: Limits = Limits()
    """Read back from the kernel. The share of GPU time is the one last sent to the job."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it was created with."""
    gpu_access: GpuAccess | None = None
    gpu_enforced: tuple[tuple[str, str], ...] = ()
    """For each limited resource (`devices`, `time`, `memory`, `cpu`), a short text on what enforces
    the limit. A resource without an entry has only an advisory limit."""
    gpus_kept: tuple[str, ...] = ()
    """UUIDs beyond `gpus` that a move reserves for it: where it goes, or may return to."""
    origin: str | None = None
    """The first container of its work, if it was moved to other GPUs since; None: this one."""
    gpu_lost: str | None = None
    """How it lost GPUs since this start, in one line; None: no loss is known."""
    cpu_shares: int | None = None
    """Read back from the kernel; on cgroup v2 the shares that match its weight. None: it has no
    weight, as in the idle class."""
    cpu_idle: bool | None = None
    """Whether it is in the kernel's idle class, as read back; None: it cannot be put there."""
    burst_cores: float | None = None
    """Read back from the kernel; None: it cannot be set."""
    usage_core_s: float | None = None
    """CPU time since this start, in core-seconds, from the kernel."""
    periods: int | None = None
    throttled_periods: int | None = None
    usage: Usage = Usage()
    """What is read as it is shown, and no mean over time yet."""
    memory: MemoryFact = MemoryFact()
    """Read every few seconds; `usage.memory_bytes` is all of its use now."""
    waits: WaitFact | None = None
    """The last sample of what its threads wait for; None: none was asked for."""
    threads: ThreadsFact | None = None
    """The last sample of its threads in this start; None: none was called for."""
    reports: tuple[Report, ...] = ()
    """Sidecar lines received since the previous observation."""
    bad_lines: int = 0
    """Number of sidecar lines refused since this start."""
    refused: str | None = None
    """Why the first of them was refused."""
    log: LogFact | None = None
    """None: no pattern reads its log."""
    sidecar_problem: str | None = None
    hides_failures: bool = False
    """Whether its source gives latencies and cannot tell which requests failed."""
    has_source: bool = True
    """Whether it has a source of progress."""
    wire: WireFact | None = None
    """None: its sockets are not to be measured."""
    operation: Operation | None = None
    """The operation that runs on it now; None: none."""
    name: str = ""
    """The engine's name of it, by which callers are named."""

    @property
    def start(self) -> tuple[str, int, float | None]:
        """Another value: another start. The engine counts its own restarts alone: a start by hand
        shows by its time."""
        return self.container_id, self.starts, self.started_at_s

    @property
    def life(self) -> str:
        """An identity that survives moves: the ID of the first container."""
        return self.origin or self.container_id


@dataclass(frozen=True, slots=True)
class Report:
    """One valid sidecar line, or one reading of another progress source."""

    received_s: float
    writer: str = ""
    latency: LatencySketch | None = None
    in_flight: int | None = None
    oldest_s: float | None = None
    sample: Sample | None = None
    checkpoint: CheckpointAck | None = None
    gpu_ratio: float | None = None
    """Fraction of its GPUs' time that it used, as it reports."""
    span_s: float = 1.0
    """Length of the time that it covers. Its requests ended at most so long before `received_s`."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Progress of what `Runtime.apply` began for a job without a container, or why that failed."""

    job: str
    stage: Literal["pulling", "pulled", "starting", "failed"]
    """`pulled` is started by a new action, with the limits of that moment."""
    detail: str
    digest: str
    """`JobSpec.digest` of the attempt. A failure counts only against that spec."""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """All facts of one moment. An unreadable value is None; one job never raises for all."""

    now_s: float
    engine_ok: bool
    engine_problem: str | None = None
    containers: tuple[ContainerFact, ...] = ()
    begun: tuple[Begun, ...] = ()
    left_alone: tuple[Alarm, ...] = ()
    """Containers with invalid dlsched labels, each with the reason."""
    host_busy_core_s: float | None = None
    """CPU time of all processes on the host since boot, in core-seconds."""
    node: NodeFact | None = None
    gpus_away: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the GPUs of jobs that left for another node and may return, by job."""
    container_names: Mapping[str, str] = field(default_factory=dict)
    """The engine's names of containers that hold GPUs or use CPU, by ID; one that it does not list
    is missing."""


NAMED_CORES = 0.05
"""A smaller user of the CPU is not named: what it takes makes no job late."""


class CpuUserKind(StrEnum):
    """What uses CPU on the host beside jobs."""

    CONTAINER = "container"
    """A container that is no job, of any engine."""
    UNIT = "unit"
    """A unit of systemd."""
    PROCESS = "process"
    """A process that is in neither."""


@dataclass(frozen=True, slots=True)
class CpuUser:
    """Something that is no job, and the CPU that it uses."""

    kind: CpuUserKind
    name: str
    """Printable and short; that of a process with its ID, and a container's ID where it has no
    name."""
    cores: float
    yields_by: str | None = None
    """The container to adopt, or the unit whose weight to lower, so that it yields to jobs. None:
    nothing is known to help."""


@dataclass(frozen=True, slots=True)
class HostCpu:
    """Who used the CPU of the host between the last two samples."""

    busy_cores: float
    """CPU used by everything, jobs too."""
    users: tuple[CpuUser, ...] = ()
    """The largest users that are no job, largest first; their number is bounded."""


@dataclass(frozen=True, slots=True)
class NodeFact:
    """The host's resources, before any reserve."""

    cores: float
    """CPUs that containers may use; fewer where a quota around them and this process allows less.
    """
    memory_bytes: int
    grain_cores: float = 0.001
    """Step size of CPU ceilings in the engine."""
    gpus: tuple[GpuFact, ...] = ()
    """In the driver's order."""
    gpu_trouble: str | None = None
    """Why GPUs cannot be observed, or only some; None: all are listed, or there is no driver."""
    gpus_read_at_s: float | None = None
    """When the GPUs were last read (monotonic); None: never."""
    jobs_cores: float | None = None
    """Quota of a control group around all containers, but not around the rest of the host."""
    bound_by: str | None = None
    """What allows fewer cores than the host has CPUs, in a few words."""
    throttled_ratio: float = 0.0
    """Fraction of the last seconds in which a quota that is not visible held containers back."""
    parts: tuple[tuple[tuple[str, ...], str], ...] = ()
    """Jobs around which a tighter quota lies than around others, and that quota in a few words."""
    host_cpu: HostCpu | None = None
    """None: not known yet, or not visible."""
    memory_available_bytes: int | None = None
    """What programs can still get without swapping, by the kernel's estimate; None: unknown."""

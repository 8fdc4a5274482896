"""The frozen types that every layer speaks: a decision is a value, and so is all that leads to it.

Owns the nouns of the program, all in one place, since each is understood by its neighbours: read it
once from top to bottom. It must not do anything: no I/O, no clock, no Docker, no arithmetic beyond
what a type needs to describe itself. Units are in the names: `_s` seconds, `_bytes`,
`_cores`, `_core_s`, `_ratio` 0 to 1. `None` means unread or unbounded, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

# --------------------------------------------------------------------------- what users ask for


@dataclass(frozen=True, slots=True)
class Limits:
    """What can be changed on a running job."""

    cpu_cores: float | None = None
    """Ceiling in cores; None: no ceiling."""
    gpu_share: float | None = None
    """Share of each of its GPUs' time, 0 to 1; None: not divided."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Floor and ceiling that the spec sets to whatever a policy decides."""

    floor_cores: float = 0.01
    ceiling_cores: float | None = None
    floor_share: float = 1.0
    """Share of each of its GPUs' time that it is promised; 1: they are its alone."""
    ceiling_share: float = 1.0


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """Answer within `seconds`: in the mean (`quantile` None), or for that part of requests."""

    seconds: float
    quantile: float | None = None


@dataclass(frozen=True, slots=True)
class AccuracyTarget:
    """Deliver at one value of a metric, finish at a second (below the first: lower is better)."""

    metric: str
    deliver: float
    finish: float
    deadline_s: float | None = None


Target = LatencyTarget | AccuracyTarget


@dataclass(frozen=True, slots=True)
class Stop:
    """How a job wants to be ended: this signal, and so long to comply before SIGKILL."""

    signal: str = "SIGTERM"
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How a job is told to save itself, how long that may take, and where it saves."""

    signal: str
    timeout_s: float
    path: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Docker's own restart policy, which works while the agent is down."""

    name: Literal["no", "always", "unless-stopped", "on-failure"] = "no"
    max_retries: int = 0
    """Only with on-failure; 0: for ever."""


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """Compose's healthcheck: the command and its times; None: the engine's default."""

    test: tuple[str, ...]
    interval_s: float | None = None
    timeout_s: float | None = None
    start_period_s: float | None = None
    retries: int | None = None


@dataclass(frozen=True, slots=True)
class Ulimit:
    """A resource limit of the container's processes."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Logging:
    """The engine's log driver and its options; the default keeps three files of 10 MiB."""

    driver: str = "json-file"
    options: tuple[tuple[str, str], ...] = (("max-file", "3"), ("max-size", "10m"))


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What the container is made from. A change of any of it needs a new container."""

    image: str
    command: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()
    volumes: tuple[str, ...] = ()
    """As Compose's short form, `source:target[:mode]`."""
    restart: Restart = Restart()
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_memory_bytes: int | None = None
    """On each of its GPUs; None: all of it, or as large a part as it has of their time."""
    gpu_model: str | None = None
    """What its GPUs' product name must contain, whatever the case; None: any will do."""
    ports: tuple[str, ...] = ()
    network: str | None = None
    user: str | None = None
    working_dir: str | None = None
    shm_size_bytes: int | None = None
    tmpfs: tuple[str, ...] = ()
    ulimits: tuple[Ulimit, ...] = ()
    extra_hosts: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    read_only: bool = False
    cap_drop: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None
    logging: Logging = Logging()
    pull_policy: Literal["missing", "always", "never"] = "missing"

    @property
    def discreet(self) -> ContainerSpec:
        """For whatever is told or kept: without the environment's values, which may be secrets."""
        return replace(self, environment=tuple((name, "***") for name, _ in self.environment))


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job file, or an adopted container's labels, parsed: what it is, and what may change."""

    name: str
    container: ContainerSpec
    bounds: Bounds = Bounds()
    weight: float = 1.0
    target: Target | None = None
    stop: Stop = Stop()
    checkpoint: Checkpoint | None = None
    container_digest: str = ""
    """Of `container` alone: another one means recreate."""
    digest: str = ""
    """Of everything but `owner`: another one means that the user changed the file."""
    owner: int | None = None
    """uid that owns the job file; None: the job is from no file."""


@dataclass(frozen=True, slots=True)
class OwnerCeilings:
    """What the jobs of one owner may have together."""

    jobs: int
    cpu_cores: float | None = None
    """What their CPU limits may add up to; None: all of capacity."""
    memory_bytes: int | None = None
    gpus: int = 0


# --------------------------------------------------------------------------- what is measured


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


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job's sidecar told, stamped with the agent's own receive time."""

    fresh: LatencySketch = LatencySketch()
    """What arrived since the cycle before."""
    window: LatencySketch = LatencySketch()
    """What was measured wholly under the present limits, at most `Snapshot.window_s` back."""
    recent: LatencySketch = LatencySketch()
    """What arrived in the last `Snapshot.window_s`, whatever the limits were."""
    in_flight: int = 0
    oldest_s: float = 0.0
    """Age of the oldest request not yet answered: a hung service is slow, not silent."""
    samples: tuple[Sample, ...] = ()
    """Training reports, oldest first, bounded."""
    as_of_s: float | None = None
    """When the last valid line was received; None: never."""
    bad_lines: int = 0
    checkpoint: CheckpointAck | None = None
    checkpoint_at_s: float | None = None
    """When `checkpoint` was received."""
    gpu_ratio: float | None = None
    """Part of its GPUs' time that it used lately, by its own word; None: it is not paced."""
    trouble: str | None = None
    """Why the sidecar cannot be read, in one line."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The evaluation with which a tier of an accuracy target was reached."""

    at_s: float
    """When it was received (monotonic)."""
    value: float
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Tiers:
    """Which tiers of its accuracy target a container has reached, for good."""

    delivered: Reached | None = None
    finished: Reached | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What a container uses, as the kernel counts it. Each may be None: unread is not zero."""

    cpu_cores: float | None = None
    """Mean since the cycle before."""
    window_cores: float | None = None
    """Mean over the same time as `Progress.window`."""
    memory_bytes: int | None = None
    throttled_ratio: float | None = None
    """Part of the scheduling periods since the cycle before that hit the quota."""
    cpu_pressure_ratio: float | None = None
    gpu_ratio: float | None = None
    """Part of its GPUs' time that it used since the cycle before, in the mean over them."""
    gpu_window_ratio: float | None = None
    """The same over the time of `Progress.window`."""
    gpu_memory_bytes: int | None = None
    """On all of its GPUs together."""


# --------------------------------------------------------------------------- the runtime's facts


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
    cpu_pressure_ratio: float | None = None
    reports: tuple[Report, ...] = ()
    """Sidecar lines that arrived since the observation before."""
    bad_lines: int = 0
    """Sidecar lines refused so far, for this start."""
    sidecar_trouble: str | None = None
    has_source: bool = True
    """Whether there is anything that its progress can be read from."""
    operation: str | None = None
    """What the runtime is doing to it now (`stopping`, `updating`, `moving`), or None."""

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
    left_alone: tuple[str, ...] = ()
    """Containers whose labels ask for us in vain, each with the reason in one line."""
    host_busy_core_s: float | None = None
    """CPU time of everything on the host since boot, in core-seconds."""
    node: NodeFact | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A durable word that a job ended, kept as long as its spec has this digest."""

    name: str
    digest: str
    kind: Literal["finished", "failed", "stopped"]
    detail: str = ""
    exit_code: int | None = None
    wall_time: str = ""
    attained_core_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivered:
    """A durable word that a job can be delivered, as long as container and target are these."""

    name: str
    container_id: str
    """`ContainerFact.life`: a move to other GPUs changes nothing of what was delivered."""
    metric: str
    deliver: float
    finish: float
    tiers: Tiers
    checkpoint: CheckpointAck | None = None
    """What it had acknowledged by then: the container's words."""
    wall_time: str = ""
    told: bool = False
    """Whether the operator's command has run, or none was wanted."""


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


# --------------------------------------------------------------------------- what a policy sees


class JobState(StrEnum):
    """A job's lifecycle; the table of transitions is at the head of `ledger`."""

    WAITING = "waiting"
    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    PAUSED = "paused"
    MOVING = "moving"
    """To other GPUs: it saves itself, is stopped, and goes on in a new container."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    UNMANAGED = "unmanaged"
    """Ours, but its file cannot be read: left exactly as it is."""

    @property
    def holds(self) -> bool:
        """Whether a job in this state holds its floor, its memory and its ceiling."""
        return self not in (self.WAITING, self.STOPPED, self.FINISHED, self.FAILED)


@dataclass(frozen=True, slots=True)
class JobView:
    """All that is known of one job at one moment."""

    spec: JobSpec
    state: JobState
    reason: str | None = None
    """Why it is in that state, where that is not plain."""
    adopted: bool = False
    """Whether somebody else started its container, and will end it."""
    blind: str | None = None
    """Why nothing is known of its progress, although it has a target; None: it is known."""
    container_id: str | None = None
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it holds."""
    gpus_kept: tuple[str, ...] = ()
    """As `ContainerFact.gpus_kept`: kept for it, so nobody else's."""
    gpu_access: GpuAccess | None = None
    gpu_enforced: tuple[tuple[str, str], ...] = ()
    """As `ContainerFact.gpu_enforced`."""
    gpu_lost: str | None = None
    """As `ContainerFact.gpu_lost`."""
    desired: Limits = Limits()
    """The last decision, after the guards."""
    actual: Limits = Limits()
    cpu_shares: int | None = None
    """As `ContainerFact.cpu_shares`."""
    cpu_idle: bool = False
    """Whether it is in the kernel's idle class."""
    can_idle: bool = False
    """Whether it can be put there, and the operator wants such jobs there."""
    burst_cores: float | None = None
    """Read back from the kernel; None where it cannot be set."""
    usage: Usage = Usage()
    progress: Progress = Progress()
    attained_core_s: float = 0.0
    """Attained service: CPU time over all its starts."""
    started_at_s: float | None = None
    changed_at_s: float | None = None
    """When its limits were last changed."""
    starts: int = 0
    tiers: Tiers = Tiers()
    """Of its accuracy target, whatever the policy."""

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name

    @property
    def may_idle(self) -> bool:
        """Whether it may go to the idle class: a training on CPUs that was promised no part."""
        return (
            self.can_idle
            and isinstance(self.spec.target, AccuracyTarget)
            and not self.gpus
            and self.spec.bounds.floor_cores <= Bounds().floor_cores
        )

    @property
    def runs(self) -> bool:
        """Whether limits have a meaning for it now."""
        return self.state is JobState.RUNNING


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU, and who beside our jobs is on it."""

    fact: GpuFact
    reserved: bool = False
    """The operator keeps it from jobs."""
    foreign_processes: int = 0
    """Processes on it that are of no job of ours."""
    foreign_memory_bytes: int = 0
    """What those hold, as far as it can be read."""

    @property
    def uuid(self) -> str:
        """The GPU's UUID."""
        return self.fact.uuid


@dataclass(frozen=True, slots=True)
class NodeView:
    """What there is to divide."""

    capacity_cores: float
    """What containers may use, less the reserve."""
    cores: float
    memory_bytes: int
    grain_cores: float = 0.001
    """Steps in which ceilings are kept; guards round to them."""
    foreign_cores: float | None = None
    """CPU used on the host by everything that is not our job."""
    gpus: tuple[GpuView, ...] = ()
    """In the driver's order."""
    gpu_trouble: str | None = None
    """As `NodeFact.gpu_trouble`."""
    weighs: bool = True
    """Whether weights divide it where jobs want more than there is; a GPU's time, which policies
    see as a node too, is divided by ceilings alone."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a policy may know: one moment, the time in it, jobs sorted by name."""

    cycle: int
    now_s: float
    node: NodeView
    jobs: tuple[JobView, ...] = ()
    window_s: float = 30.0
    wakes: tuple[str, ...] = ()
    """Arrivals, exits and changed targets since the last decision, each in a few words."""

    @property
    def running(self) -> tuple[JobView, ...]:
        """The jobs whose limits can be decided now."""
        running = JobState.RUNNING
        return tuple([job for job in self.jobs if job.state is running])


class OutlookKind(StrEnum):
    """What can be said of a target."""

    MET = "met"
    EXPECTED = "expected"
    """It will be met at a time that can be told."""
    CROWDED = "crowded"
    """Not beside these others; with less for some of them it would be."""
    IMPOSSIBLE = "impossible"
    """Not on this node, whoever else is on it."""
    UNKNOWN = "unknown"
    """There is not enough to tell by yet."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be expected of one target of one job, if all goes on as it is decided now.

    Times are on the agent's clock (monotonic), so that they stay true while nothing is decided.
    """

    kind: OutlookKind
    tier: Literal["latency", "deliver", "finish", "end"]
    """Which of its targets: that of its latency, a tier of its accuracy, or its last step."""
    at_s: float | None = None
    """When it is expected, or was met; None: that cannot be told, or it is met all the time."""
    earliest_s: float | None = None
    """The 80 % interval of `at_s`."""
    latest_s: float | None = None
    needs_cores: float | None = None
    """Mean cores that would meet it; None: unknown, or none would."""
    best: float | None = None
    """What the node can bring it to at best: seconds of latency, or a value of its metric."""
    lacks: tuple[tuple[str, float], ...] = ()
    """CROWDED: jobs that would have to give it cores, and how many each, fewest jobs first."""
    why: str = ""
    """In one sentence, with the numbers."""


Memory = object
"""A policy's memory: a frozen dataclass of plain values, or None at the start."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants, with a sentence why for each job; jobs that it leaves out stay as is."""

    limits: Mapping[str, Limits] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    memory: Memory | None = None
    next_s: float = 0.0
    """When to be asked again; 0: at the next cycle. A wake asks at once."""
    gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the GPUs that a job should be on. Only one that declares `checkpoint` is moved."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Relative weights where jobs want more CPU than there is; one left out weighs as its ceiling.
    They hold until the policy is asked again."""
    outlooks: Mapping[str, tuple[Outlook, ...]] = field(default_factory=dict)
    """What can be expected of each job's targets; they hold until the policy is asked again."""


# --------------------------------------------------------------------------- what is done


@dataclass(frozen=True, slots=True)
class Start:
    """Make and start the job's container under these limits."""

    spec: JobSpec
    limits: Limits
    cpu_shares: int
    source: str = ""
    """The job file, written into the container's labels."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it gets."""

    @property
    def job(self) -> str:
        """The job's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Move:
    """Bring a running job to other GPUs: it saves itself, is stopped, and goes on in a new
    container of the same name, mounts and identity; back to the old one where that fails."""

    container_id: str
    start: Start
    """The new container, with the GPUs that it gets."""
    checkpoint: Checkpoint
    why: str
    saved_before: bool = False
    """It lost a GPU, and saved itself before: where it does not answer, it goes on from there."""

    @property
    def job(self) -> str:
        """The job's name."""
        return self.start.job


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the limits of a running container."""

    job: str
    container_id: str
    before: Limits
    limits: Limits
    cpu_shares: int
    why: str
    burst_cores: float | None = None
    """What it may use beyond its ceiling where it saved that up; None: what it came with."""
    cpu_idle: bool = False
    """Whether it goes to the kernel's idle class: it runs where no other task wants to."""
    ceiling_cores: float | None = None
    """Of its spec: what a container of ours goes back to when everything is given back."""

    @property
    def grows(self) -> bool:
        """Whether it raises the ceiling, or where that stays, the share of GPUs' time."""
        if self.only_tells:
            share = self.before.gpu_share
            return share is not None and (self.limits.gpu_share or 0.0) > share
        old, new = self.before.cpu_cores, self.limits.cpu_cores
        return new is None or (old is not None and new > old)

    @property
    def only_tells(self) -> bool:
        """Whether its job has to be told of another share of GPUs' time, and nothing else."""
        before, after = self.before, self.limits
        return before.cpu_cores == after.cpu_cores and before.gpu_share != after.gpu_share


@dataclass(frozen=True, slots=True)
class Remove:
    """End a container as its spec says (signal, grace) and remove it."""

    job: str
    container_id: str
    stop: Stop
    lift: Limits | None
    """Given first, since a job ends faster without its limit; None: limits stay."""
    why: str


Action = Start | Resize | Move | Remove


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action. `begun` shows in later observations."""

    action: Action
    status: Literal["done", "begun", "failed", "withheld"]
    detail: str = ""
    retryable: bool = True
    engine_s: float = 0.0
    """Time spent in engine calls."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """What a policy that only looks on would have done in this cycle; none of it is ever done."""

    policy: str
    decision: Decision | None = None
    """None: it was not asked in this cycle, or failed."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """Its last decision after the guards, from the state that the acting policy brought about."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reasons of its last decision, by job."""
    guarded: Mapping[str, str] = field(default_factory=dict)
    """What a guard changed, by job, in one sentence."""
    trouble: str | None = None
    """How it failed, since its last decision or for good."""


@dataclass(frozen=True, slots=True)
class HookRun:
    """What became of the operator's command for one delivery."""

    delivered: Delivered
    status: Literal["done", "failed", "unstarted", "aborted"]
    """`unstarted` and `aborted` (by the agent's end) are tried again by the next agent."""
    detail: str


@dataclass(frozen=True, slots=True)
class CycleReport:
    """One cycle, whole: what journal, API, pages and tests all read."""

    snapshot: Snapshot
    policy: str
    decision: Decision | None = None
    """None: the policy was not asked in this cycle."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """The decision after the guards."""
    guarded: Mapping[str, str] = field(default_factory=dict)
    """What a guard changed, by job, in one sentence."""
    outcomes: tuple[Outcome, ...] = ()
    rejected: tuple[RejectedFile, ...] = ()
    alarms: tuple[str, ...] = ()
    engine_ok: bool = True
    wall_time: str = ""
    """RFC 3339 UTC, for show only."""
    phase_s: Mapping[str, float] = field(default_factory=dict)
    """CPU time of the loop by phase."""
    shadow: Shadow | None = None
    """The policy that looks on, where there is one."""
    hooks: tuple[HookRun, ...] = ()
    """Runs of the operator's command that ended since the cycle before."""
    outlooks: Mapping[str, tuple[Outlook, ...]] = field(default_factory=dict)
    """Of the policy's last decision: what can be expected of each job's targets."""


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A job file that is not in force, and every reason why."""

    file: str
    job: str | None
    problems: tuple[str, ...]

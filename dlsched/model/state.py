"""State of jobs and node at one moment, as a policy gets it, and durable records of jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from dlsched.model.bottleneck import Bottleneck
from dlsched.model.facts import (
    CheckpointAck,
    GpuAccess,
    GpuFact,
    HostCpu,
    LatencySketch,
    LogFact,
    Operation,
    Sample,
    ThreadsFact,
    Usage,
    WireFact,
)
from dlsched.model.resource import CPU, Resource
from dlsched.model.spec import MAX_FAILED_RATIO, AccuracyTarget, JobSpec, Limits
from dlsched.model.units import render_seconds

OFTEN_S = 1.0
"""Resolution of the time between reports: shorter gaps count as this."""
MISSING_GAPS = 2.5
"""Reports are missing after this many typical gaps; one late report alone may leave two."""
LACKING_REPORTS = 3
"""Reports without the target's metric that are a pattern; one may be the line before it."""
NAMES_KEPT = 16
"""Names of a container's metrics that are kept for messages, which show the closest few."""
MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Lacks:
    """A training that reports, but never the metric of its target."""

    since_s: float
    """When the first report without it was received (monotonic)."""
    reports: int
    """How many of them came, up to `LACKING_REPORTS`."""
    names: tuple[str, ...] = ()
    """Names of other metrics, the first few. A container chooses them."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A service that gets no request, which is no fault."""

    since_s: float
    """When its last request was reported, or when it was first observed (monotonic)."""
    began: bool = False
    """Whether no request was reported since its start, which was observed."""
    certain: bool = True
    """Whether its source says so. False: it is silent, and uses hardly any CPU."""

    def text(self, now_s: float) -> str:
        """Since when, in a few words."""
        ago = render_seconds(_coarse_s(now_s - self.since_s))
        return f"no request since it started, {ago} ago" if self.began else f"no request for {ago}"


def _coarse_s(age_s: float) -> float:
    """The age in whole minutes from one on, so that the text does not change in every cycle."""
    return age_s if age_s < MINUTE_S else age_s // MINUTE_S * MINUTE_S


@dataclass(frozen=True, slots=True)
class Progress:
    """A job's reported progress, stamped with the agent's receive time."""

    fresh: LatencySketch = LatencySketch()
    """Latencies received since the previous cycle."""
    window: LatencySketch = LatencySketch()
    """Latencies measured entirely under the present limits, at most `Snapshot.window_s` back."""
    recent: LatencySketch = LatencySketch()
    """Latencies received in the last `Snapshot.window_s`, under any limits."""
    in_flight: int = 0
    oldest_s: float = 0.0
    """Age of the oldest unanswered request. A service that hangs counts as slow, not as silent."""
    samples: tuple[Sample, ...] = ()
    """Training reports, oldest first; their number is bounded."""
    as_of_s: float | None = None
    """When the last valid line was received; None: never."""
    bad_lines: int = 0
    refused: str | None = None
    """Why the first bad line was refused."""
    log: LogFact | None = None
    checkpoint: CheckpointAck | None = None
    gpu_ratio: float | None = None
    """Recent fraction of its GPUs' time that it used, as it reports; None: it is not paced."""
    trouble: str | None = None
    """Why the sidecar cannot be read, in one line."""
    hides_failures: bool = False
    """`ContainerFact.hides_failures`."""
    wire: WireFact | None = None
    """`ContainerFact.wire`."""
    every_s: float = OFTEN_S
    """Typical seconds between two reports of requests, at least `OFTEN_S`."""
    lacks: Lacks | None = None
    """What comes in place of its target's metric, which never has; None: it has, or nothing has."""

    @property
    def missing_s(self) -> float:
        """Length of a silence after which reports of requests are missing."""
        return MISSING_GAPS * self.every_s


@dataclass(frozen=True, slots=True)
class Diverged:
    """A training's metric whose last value is not finite."""

    metric: str
    value: str
    """`nan`, `inf` or `-inf`."""
    at_s: float
    """When the first such value was received (monotonic)."""
    step: int | None = None

    def __str__(self) -> str:
        step = "" if self.step is None else f" at step {self.step}"
        return f"{self.metric} {self.value}{step}"


@dataclass(frozen=True, slots=True)
class Reached:
    """The evaluation that reached a tier of an accuracy target."""

    at_s: float
    """When it was received (monotonic)."""
    value: float
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of its accuracy target that a container has reached. They are never lost again."""

    delivered: Reached | None = None
    finished: Reached | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """Growth of a container's memory that will reach its limit if it goes on, as measured."""

    grew_bytes: int
    over_s: float
    """The time in which it grew by that."""
    limit_bytes: int
    full_in_s: float
    """Time to the limit, from `at_s` on."""
    at_s: float


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A container's memory. Fields shared with `MemoryFact` mean the same."""

    working_set_bytes: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kills: int | None = None
    """Over all starts that were observed."""
    limit_reached: bool = False
    filling: Filling | None = None
    """None: it does not fill up."""
    held_bytes: int | None = None
    own_bytes: int | None = None
    before_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Spinning:
    """Threads of a container that burn the CPU which others of its threads need, as measured."""

    threads: int
    """Busy threads, as a mean over the samples that it rests on."""
    cores: float
    """CPU that the container has for them: its limit, or what its neighbours leave it."""
    limited: bool
    """Whether that is its limit. False: neighbours on a full host."""
    spun_ratio: float
    """Fraction of its CPU time in loops that only wait."""
    library: str
    """File name of the library or program with most of these loops."""


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """A container's threads."""

    sample: ThreadsFact | None = None
    """`ContainerFact.threads`, as long as it says something about the present."""
    spinning: Spinning | None = None
    """None: they do not spin to its harm, or it is not known."""
    spun: bool = False
    """Whether they did so in this start, be it now or earlier: they would again under a limit."""


STOPPED_BY_COMMAND = (
    "stopped by command; `dlsched submit --start` or a changed file starts the job again"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """Durable record of a job's end, valid while its spec has this digest."""

    name: str
    digest: str
    """Empty once a start was asked for, which no spec has: it is to run again."""
    kind: Literal["finished", "failed", "stopped"]
    detail: str = ""
    exit_code: int | None = None
    wall_time: str = ""
    attained_core_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Delivered:
    """Durable record that a job can be delivered, valid for this container and target."""

    name: str
    container_id: str
    """`ContainerFact.life`, so the record survives moves to other GPUs."""
    metric: str
    deliver: float
    finish: float
    tiers: Tiers
    checkpoint: CheckpointAck | None = None
    """The container's last acknowledged checkpoint at that time."""
    wall_time: str = ""
    told: bool = False
    """Whether the operator's command has run, or none was configured."""


class JobState(StrEnum):
    """A job's lifecycle. `control.ledger.lifecycle` begins with the table of transitions."""

    WAITING = "waiting"
    PULLING = "pulling"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    PAUSED = "paused"
    MOVING = "moving"
    """Moving to other GPUs: it saves a checkpoint, stops, and continues in a new container."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    UNMANAGED = "unmanaged"
    """Its file cannot be read, so its container is left exactly as it is."""

    @property
    def holds(self) -> bool:
        """Whether a job in this state occupies its floor, its memory and its ceiling."""
        return self not in (self.WAITING, self.STOPPED, self.FINISHED, self.FAILED)


@dataclass(frozen=True, slots=True)
class JobView:
    """Everything known about one job now. Fields shared with `ContainerFact` mean the same."""

    spec: JobSpec
    state: JobState
    reason: str | None = None
    """Why it is in this state, where that is not obvious."""
    operation: Operation | None = None
    """`ContainerFact.operation`; None: its limits may be changed."""
    adopted: bool = False
    """Whether someone else started its container, and ends it."""
    blind: str | None = None
    """Why its progress is unknown although it has a target; None: it is known, or it is idle."""
    idle: Idle | None = None
    """A service without requests for so long that it would be blind otherwise; None: it is not."""
    container_id: str | None = None
    gpus: tuple[str, ...] = ()
    gpus_kept: tuple[str, ...] = ()
    """`ContainerFact.gpus_kept`: reserved for it, so no other job gets them."""
    gpu_access: GpuAccess | None = None
    gpu_enforced: tuple[tuple[str, str], ...] = ()
    gpu_lost: str | None = None
    desired: Limits = Limits()
    """The limits last decided, after the guards."""
    actual: Limits = Limits()
    altered: bool = False
    cpu_shares: int | None = None
    cpu_idle: bool = False
    can_idle: bool = False
    """Whether it can be put there and the operator allows it."""
    burst_cores: float | None = None
    usage: Usage = Usage()
    memory: MemoryUse = MemoryUse()
    threads: ThreadUse = ThreadUse()
    progress: Progress = Progress()
    attained_core_s: float = 0.0
    """Attained service: CPU time over all starts."""
    started_at_s: float | None = None
    changed_at_s: float | None = None
    """When its limits were last changed."""
    starts: int = 0
    tiers: Tiers = Tiers()
    """Reached tiers of its accuracy target, under any policy."""
    max_failed_ratio: float = MAX_FAILED_RATIO
    """Part of its requests that may fail while its latency target counts as met."""
    diverged: Diverged | None = None
    """How its training diverged; None: it did not, or its values are finite again."""
    bottleneck: Bottleneck | None = None
    """Why it misses its latency target, or as a training hardly computes; None: it does not, or
    too little is measured yet."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def cpu_helps(self) -> bool:
        """Whether more CPU may make it faster: it waits for a CPU, or no other cause is known."""
        named = self.bottleneck
        return named is None or named.cause.is_cpu or named.lacks_cpu

    @property
    def unheard(self) -> str | None:
        """Why nothing may be concluded from its reports, for policies; None: they may be used. A
        service that is idle only as far as its silence shows is trusted no more than a blind one:
        it keeps a safe share for the moment in which a request comes."""
        if self.blind is not None:
            return f"blind, {self.blind}"
        return "idle" if self.idle is not None and not self.idle.certain else None

    @property
    def may_idle(self) -> bool:
        """Whether it may use the idle class: a background job, or a training on CPUs, without a
        guaranteed floor."""
        behind = self.spec.background or self.trains_on_cpus
        return self.can_idle and behind and not self.spec.bounds.promised

    @property
    def trains_on_cpus(self) -> bool:
        """Whether it is a training that can run behind all other jobs."""
        return isinstance(self.spec.target, AccuracyTarget) and not self.gpus

    @property
    def runs(self) -> bool:
        """Whether limits apply to it now."""
        return self.state is JobState.RUNNING


class HolderKind(StrEnum):
    """Whose the memory is that something holds on a GPU."""

    OWN = "own"
    """A job's container, which dlsched started."""
    ADOPTED = "adopted"
    """A job's container, which someone else started."""
    FOREIGN = "foreign"
    """A container that dlsched does not manage, or a process in no container."""
    UNSEEN = "unseen"
    """A process that dlsched cannot see, so it may be any of these."""


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A container on a GPU with all of its processes there, or one process in no container."""

    kind: HolderKind
    container_id: str | None = None
    name: str | None = None
    """The container's name as the engine has it; None: the engine does not list it."""
    job: str | None = None
    """The job that it belongs to."""
    pid: int | None = None
    """The process ID on the host, for a process in no container."""
    uid: int | None = None
    """Owner of the job file, or the user of a process in no container."""
    user: str | None = None
    """The name of that process's user."""
    memory_bytes: int | None = None
    """None: the driver does not report it for each of its processes."""
    computes: bool | None = None
    """Whether it used the GPU since the previous reading; None: unknown, as on MIG."""
    idle_since_s: float | None = None
    """When it was first read as idle (monotonic), without a use since; None: not idle, or
    unknown."""
    idle_over_s: float | None = None
    """A length of idle time that it has exceeded: `gpus.idle_after`, doubled as often as it fits;
    None: it has not, or that setting is off. Steps keep texts the same for a while."""

    @property
    def managed(self) -> bool:
        """Whether it belongs to a job."""
        return self.job is not None

    def __str__(self) -> str:
        if self.job is not None:
            return f"job {self.job}"
        if self.container_id is not None:
            return f"container {self.name or self.container_id[:12]}"
        if self.kind is HolderKind.UNSEEN:
            return f"process {self.pid}, which dlsched cannot see"
        return f"process {self.pid}{'' if self.whose is None else f' of {self.whose}'}"

    @property
    def whose(self) -> str | None:
        """Its owner: the user's name, else `uid 1000`; None: unknown, or it has none."""
        return self.user or (None if self.uid is None else f"uid {self.uid}")


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU, its holders, and its use by processes outside our jobs."""

    fact: GpuFact
    reserved: bool = False
    """Whether the operator reserves it."""
    foreign_processes: int = 0
    """Number of its processes that belong to no job of ours."""
    foreign_memory_bytes: int = 0
    """Memory of those processes, as far as it can be read."""
    kept_for: tuple[str, ...] = ()
    """Jobs that left for another node, and may return to it."""
    holders: tuple[GpuHolder, ...] = ()
    """Containers and processes with memory on it; their number is bounded."""
    holders_left_out: int = 0
    """Further holders, beyond that bound."""

    @property
    def uuid(self) -> str:
        return self.fact.uuid


@dataclass(frozen=True, slots=True)
class NodeView:
    """The resources to divide. Fields shared with `NodeFact` mean the same."""

    capacity_cores: float
    """Cores that containers may use: the host's, less the reserve."""
    cores: float
    memory_bytes: int
    grain_cores: float = 0.001
    """Step size of ceilings. Guards round to it."""
    foreign_cores: float | None = None
    """CPU used on the host by everything but our jobs."""
    gpus: tuple[GpuView, ...] = ()
    gpu_trouble: str | None = None
    bound_by: str | None = None
    throttled_ratio: float = 0.0
    host_cpu: HostCpu | None = None
    memory_spare_bytes: int | None = None
    """What programs can still get without swapping, less the reserve; below 0 where it is in use.
    None: unknown."""
    weighs: bool = True
    """Whether weights divide it where jobs want more than there is. Policies see GPU time as a node
    too, but ceilings alone divide that."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a policy may know: one moment, its time, and jobs sorted by name."""

    cycle: int
    now_s: float
    node: NodeView
    jobs: tuple[JobView, ...] = ()
    window_s: float = 30.0
    wakes: tuple[str, ...] = ()
    """Arrivals, exits and changed targets since the last decision, a few words each."""
    resource: Resource = CPU
    """What is divided. Fields named `cores` are amounts of it: cores, or a fraction of GPU time."""

    @property
    def running(self) -> tuple[JobView, ...]:
        """The jobs whose limits can be decided now."""
        running = JobState.RUNNING
        return tuple([job for job in self.jobs if job.state is running])

    @property
    def foreground(self) -> Snapshot:
        """The node without its background jobs, which use the CPU that the others leave. Policies
        divide this one. What background jobs use counts as idle; what `cpus.min` keeps for them
        is not part of the capacity."""
        last = [job for job in self.jobs if job.spec.background]
        if not last:
            return self
        kept = sum(job.spec.kept_cores for job in last if job.state.holds)
        capacity_cores = max(0.0, self.node.capacity_cores - kept)
        return replace(
            self,
            node=replace(self.node, capacity_cores=capacity_cores),
            jobs=tuple([job for job in self.jobs if not job.spec.background]),
        )

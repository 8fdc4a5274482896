"""The status schema: what the API answers, `-o json` prints, and `ps` and `why` show.

`status` fills these types from a CycleReport, `codec` parses them back. They are standard
dataclasses, since pydantic would triple the start-up time of `dlsched ps`. Times in `_in_s` count
from now, ages in `age_s` until now. `None`: unknown, or there is none. A new key keeps
SCHEMA_VERSION; one that goes, or means something else, raises it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, Self

from dlsched.model.cycle import RejectedFile

SCHEMA_VERSION = 1

STATUS_SOCKET_NAME, CONTROL_SOCKET_NAME = "status.sock", "control.sock"
"""The API's sockets in the run directory: for reading, and for changing too."""


@cache
def _shared(kind: Any, source: Any) -> tuple[str, ...]:
    """The fields of a type of the schema that the other type has by these names."""
    there = {*dir(source), *(field.name for field in fields(source))}
    return tuple(name for name in kind.__annotations__ if name in there)


class Value:
    """Equality and text of every type below. Generated for each, they cost 5 ms of start-up."""

    @classmethod
    def of(cls, *sources: Any, **own: Any) -> Self:
        """One with the sources' fields of the same names, those of the last one first, and with its
        own."""
        kind: Any = cls
        found = {
            name: getattr(source, name)
            for source in sources
            for name in _shared(kind, source.__class__)
        }
        return cls(**{**found, **own})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"


@dataclass(frozen=True, eq=False, repr=False)
class LatencyTargetStatus(Value):
    """Answer within `seconds`, in the mean or for a quantile of requests."""

    kind: Literal["latency"]
    text: str
    """Such as `p95 50 ms`."""
    seconds: float
    quantile: float | None
    """None: the mean."""
    timed: str
    """What is timed: answer, first-byte or gap (between two parts of an answer)."""


@dataclass(frozen=True, eq=False, repr=False)
class AccuracyTargetStatus(Value):
    """Reach two values of a metric, one after the other."""

    kind: Literal["accuracy"]
    text: str
    """Such as `accuracy 0.9, 0.97`."""
    metric: str
    deliver: float
    finish: float
    deadline_s: float | None


@dataclass(frozen=True, eq=False, repr=False)
class TierStatus(Value):
    """The evaluation that reached a tier of an accuracy target."""

    value: float
    step: int | None
    age_s: float
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class TiersStatus(Value):
    """The tiers that a training has reached."""

    delivered: TierStatus | None
    finished: TierStatus | None


@dataclass(frozen=True, eq=False, repr=False)
class GiverStatus(Value):
    """A job that would have to give cores to another one."""

    job: str
    cores: float


@dataclass(frozen=True, eq=False, repr=False)
class ForecastStatus(Value):
    """What the policy expects of one target."""

    tier: str
    """latency, deliver, finish or end."""
    kind: str
    """met, expected, crowded, impossible, unlikely or unknown."""
    in_s: float | None
    """0: at any moment, or met already."""
    earliest_in_s: float | None
    """Begin of the 80 % interval of `in_s`."""
    latest_in_s: float | None
    needs_cores: float | None
    best: float | None
    """The best that this node can reach: seconds of latency, or a value of the metric."""
    lacks: tuple[GiverStatus, ...]
    givers: str
    """`lacks` as text."""
    why: str
    text: str
    """A short text, for a column."""
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class CpuStatus(Value):
    """A job's CPU in cores; the first two are ceilings, None: none."""

    desired_cores: float | None
    actual_cores: float | None
    floor_cores: float
    ceiling_cores: float | None
    usage_cores: float | None


@dataclass(frozen=True, eq=False, repr=False)
class BoundStatus(Value):
    """Whether a bound is enforced, by what, or why it is only advisory."""

    enforced: bool
    by: str


@dataclass(frozen=True, eq=False, repr=False)
class JobGpuStatus(Value):
    """What a job asks of GPUs and has of them."""

    count: int
    uuids: tuple[str, ...]
    kept: tuple[str, ...]
    """UUIDs of GPUs kept for it while it moves."""
    model: str | None
    """What the product name must contain."""
    floor_share: float
    ceiling_share: float
    desired_share: float | None
    actual_share: float | None
    asked_bytes: int | None
    used_ratio: float | None
    told_ratio: float | None
    """`used_ratio` as the job itself reports it."""
    memory_bytes: int | None
    access: str | None
    """How the GPUs reached the container: cdi, runtime, nodes or legacy."""
    lost: str | None
    """How it lost its GPUs."""
    bounds: Mapping[str, BoundStatus]
    """By what is bounded: devices, time, memory, cpu."""


@dataclass(frozen=True, eq=False, repr=False)
class LogStatus(Value):
    """What the pattern found in the lines that the container printed since its start."""

    lines: int
    matched: int
    example: str | None
    """While no line matches: the first one, escaped and short."""


@dataclass(frozen=True, eq=False, repr=False)
class WireStatus(Value):
    """What is measured at a job's listening sockets."""

    ports: tuple[int, ...]
    judges: bool
    """Whether its target is judged by this, and not by what it reports itself."""
    requests_per_s: float
    measured_ratio: float | None
    """Which part of its new connections is measured; None: there were none."""
    callers: Mapping[str, float]
    """Requests a second by client: containers by name, others by address."""
    text: str
    """What is measured, and what is not, in one line."""
    called_by: str | None
    """`callers` in one line; None: no one calls it."""
    contradiction: str | None
    """How what it reports itself differs, with both numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class SidecarStatus(Value):
    """How well the job's reports arrive."""

    age_s: float | None
    bad_lines: int
    refused: str | None
    """Why the first bad line was refused."""
    trouble: str | None
    log: LogStatus | None
    """None: no pattern reads its log."""
    hides_failures: bool
    """Whether its source gives latencies and cannot tell which requests failed."""
    lacks: str | None
    """What comes in place of its target's metric, which never has, with the remedy."""
    wire: WireStatus | None
    """None: its sockets are not measured."""


@dataclass(frozen=True, eq=False, repr=False)
class MemoryStatus(Value):
    """A container's memory, as its control group counts it; `memory_bytes` is all of its use."""

    working_set_bytes: int | None
    """Without file pages that were not used lately."""
    limit_bytes: int | None
    """The smallest limit of its group and of those around it; None: none."""
    before_bytes: int | None
    """The container's own limit before dlsched first changed it; None: dlsched has not."""
    max_bytes: int | None
    """Bound up to which dlsched may raise the limit; None: it changes no memory limit."""
    peak_bytes: int | None
    """The most that was in use since this start, page cache included."""
    oom_kills: int | None
    """Processes in it that the kernel killed for want of memory, over all starts observed."""
    filling: str | None
    """How it grows towards its limit, and when it will reach that; None: it does not."""
    text: str
    """All of it in one line; empty: nothing is known."""


@dataclass(frozen=True, eq=False, repr=False)
class BottleneckStatus(Value):
    """Why a service misses its latency target, or a training hardly computes."""

    cause: str
    """CPU (waiting for one, or at its limit), threads (that spin), memory, disk, lock, callee
    (another service), traffic (more than it can answer), loader (of a training) or not known."""
    evidence: str
    """What was measured."""
    remedy: str
    """What to do, and whether more CPU helps."""
    age_s: float
    """Since when this cause is named."""
    text: str
    """All of it in one line."""


@dataclass(frozen=True, eq=False, repr=False)
class ThreadsStatus(Value):
    """What a container's threads did with their CPU time, sampled where they may lack CPU."""

    busy: int | None
    """Threads that computed, or waited for CPU; None: no sample was called for, as for all below.
    """
    waited_cores: float | None
    """Mean number of threads that waited for CPU or for their limit."""
    spun_ratio: float | None
    """Part of their CPU time in loops that only wait; None: unknown."""
    spins_in: str | None
    """Name of the library or program with most of these loops."""
    spinning: str | None
    """That they spin to the job's harm, with the line that mends it; None: they do not, or it is
    not known."""


@dataclass(frozen=True, eq=False, repr=False)
class JobStatus(Value):
    """One job. Below REQUESTS_MIN requests `ratio` and both `satisfied` are None."""

    name: str
    state: str
    reason: str | None
    source: str
    """file, or container for one that was adopted by its labels or by `dlsched adopt`."""
    container: str | None
    target: LatencyTargetStatus | AccuracyTargetStatus | None
    measured_s: float | None
    """Latency of recent requests: the target's quantile, else the mean. None: unknown, or known
    within bounds alone, as from wide buckets."""
    lowest_s: float | None
    highest_s: float | None
    """Between which latencies `measured_s` lies; of an exact one both are that. `highest_s` is None
    where nothing bounds it."""
    requests: int
    """Recent answers; `errors` are not among them."""
    errors: int
    """Recent requests that failed, as its source counts them."""
    in_flight: int
    oldest_s: float
    """Age of the oldest request that is not yet answered."""
    metric: float | None
    """Last value of the accuracy target's metric."""
    ratio: float | None
    """Measured latency over target; of bounds, the one next to the target. None: unknown, or the
    target is between the bounds, or too many requests fail."""
    judged: str | None
    """How `ratio` compares with the target: on target, just above (by at most 10 %) or slow."""
    failing: str | None
    """Such as `60 % of requests fail, at most 1 % may`: then the target is not met, however quick
    the answers are. None: fewer fail, or too few requests came."""
    satisfied_band: bool | None
    """Whether the latency is within 10 % of the target."""
    satisfied_slo: bool | None
    """Whether the latency is not above the target."""
    bottleneck: BottleneckStatus | None
    """Why it misses its latency target, or as a training hardly computes; None: it does not, or
    too little is measured yet."""
    tiers: TiersStatus | None
    diverged: str | None
    """Which metric is nan or inf, and since which step, where the training diverged."""
    outlook: tuple[ForecastStatus, ...]
    cpu: CpuStatus
    gpu: JobGpuStatus | None
    memory_bytes: int | None
    memory: MemoryStatus
    threads: ThreadsStatus
    throttled_ratio: float | None
    sidecar: SidecarStatus
    blind: str | None
    """Why the progress of a job with a target is unknown."""
    uncertain: str | None
    """The word for why it is not judged: blind, unclear (its latency may be on either side of its
    target) or idle."""
    idle: str | None
    """Since when a service gets no request, where that is longer than `blind_after`."""
    starts: int
    owner: int | None
    """uid of the job file's owner."""
    weight: float
    background: bool
    """Whether it comes last, and so gets only CPU that no other job uses."""
    attained_core_s: float
    """CPU time over all its starts."""


@dataclass(frozen=True, eq=False, repr=False)
class GpuUserStatus(Value):
    """A job on a GPU, and its share of the GPU's time."""

    name: str
    share: float


@dataclass(frozen=True, eq=False, repr=False)
class GpuHolderStatus(Value):
    """What holds memory of a GPU: a container, or a process in none."""

    kind: str
    """own (a job's container, started by dlsched), adopted (a job's, started by someone else),
    foreign (of no job) or unseen (a process that dlsched cannot see)."""
    text: str
    """Such as `container notebook` or `process 4242 of ada`."""
    job: str | None
    container: str | None
    """Short ID."""
    name: str | None
    """The container's name as the engine has it."""
    pid: int | None
    """On the host, of a process in no container."""
    uid: int | None
    """Owner of the job file, or the user of a process in no container."""
    user: str | None
    """The name of that process's user."""
    memory_bytes: int | None
    computes: bool | None
    """Whether it used the GPU just now; None: unknown, as on MIG."""
    idle_s: float | None
    """For how long, at least, it has not used the GPU; None: it uses it, or that is unknown."""
    idle_too_long: bool
    """Whether that is longer than `gpus.idle_after`."""


@dataclass(frozen=True, eq=False, repr=False)
class GpuStatus(Value):
    """A GPU of the node, or one MIG instance."""

    index: int
    uuid: str
    part_of: str | None
    """UUID of the GPU that a MIG instance belongs to."""
    model: str
    memory_bytes: int
    memory_used_bytes: int | None
    busy_ratio: float | None
    compute_mode: str
    numa_node: int | None
    jobs: tuple[GpuUserStatus, ...]
    kept_for: tuple[str, ...]
    promised_share: float
    reserved: bool
    foreign_processes: int
    """Processes on it that belong to no job."""
    foreign_memory_bytes: int
    holders: tuple[GpuHolderStatus, ...]
    holders_left_out: int
    """Further ones: those with the most memory are listed."""
    trouble: str | None


@dataclass(frozen=True, eq=False, repr=False)
class EngineStatus(Value):
    """Whether the container engine answers."""

    ok: bool
    trouble: str | None


@dataclass(frozen=True, eq=False, repr=False)
class CpuUserStatus(Value):
    """Something that uses the host's CPU."""

    kind: str
    """job, container (of no job), unit (of systemd) or process (in neither)."""
    name: str
    cores: float
    command: str | None
    """What would take CPU from it for jobs, while CPU is short; None: nothing is known to."""


@dataclass(frozen=True, eq=False, repr=False)
class HostCpuStatus(Value):
    """Who uses the host's CPU, in the mean of about ten seconds."""

    busy_cores: float
    """CPU used by everything."""
    cores: float
    users: tuple[CpuUserStatus, ...]
    """The largest ones, at most three."""
    text: str
    """The same in one line."""


@dataclass(frozen=True, eq=False, repr=False)
class NodeStatus(Value):
    """What the node has, and what of it is given and used."""

    capacity_cores: float
    """What jobs may use."""
    cores: float
    memory_bytes: int
    foreign_cores: float | None
    """CPU used by everything that is no job."""
    host_cpu: HostCpuStatus | None
    """Who used it, without jobs; None: not known yet."""
    gpus: tuple[GpuStatus, ...]
    gpu_trouble: str | None
    used_cores: float
    given_cores: float
    """Sum of the running jobs' ceilings."""
    unlimited_jobs: int
    """Running jobs without a ceiling."""
    bound_by: str | None
    """What allows fewer cores than the host has CPUs: a control group's quota, or a cpuset."""
    throttled_ratio: float
    """Fraction of the last seconds in which a CPU quota that is not visible here held
    containers back, as a sum over CPUs; above 0 the capacity is unknown."""


@dataclass(frozen=True, eq=False, repr=False)
class Status(Value):
    """What `dlsched ps -o json` prints: node, engine, every job and every rejected file."""

    schema_version: int
    now: str
    """RFC 3339, UTC."""
    cycle: int
    policy: str
    shadow: str | None
    engine: EngineStatus
    node: NodeStatus
    alarms: tuple[str, ...]
    rejected: tuple[RejectedFile, ...]
    jobs: tuple[JobStatus, ...]

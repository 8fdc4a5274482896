"""What users ask for: a job with its container, target and bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from dlsched.model.sources import ProgressSource
from dlsched.model.units import CORES_MIN

NOT_IN_DIGEST = {"digest": False}
"""Metadata of fields outside digests, as digests on disk were computed without them."""

NAME = r"[a-z0-9][a-z0-9_.-]{1,62}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that can be changed on a running job."""

    cpu_cores: float | None = None
    """Ceiling in cores; None: no ceiling."""
    gpu_share: float | None = None
    """Share of each of its GPUs' time, 0 to 1; None: not divided."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Floor and ceiling from the spec, which hold for any policy."""

    floor_cores: float = CORES_MIN
    ceiling_cores: float | None = None
    floor_share: float = 1.0
    """Guaranteed share of each of its GPUs' time; 1: exclusive GPUs."""
    ceiling_share: float = 1.0
    promised: bool = field(default=False, metadata=NOT_IN_DIGEST)
    """Whether the user set a floor (`cpus.min`), even one equal to the default."""

    def __post_init__(self) -> None:
        if self.floor_cores > CORES_MIN:
            object.__setattr__(self, "promised", True)

    def least_cores(self, grain_cores: float) -> float:
        """The lowest limit that the engine can keep: the floor rounded up to its grain, but never
        above the ceiling. Where no step lies between the two, it is the step below them."""
        steps = math.ceil(self.floor_cores / grain_cores - 1e-6)
        if self.ceiling_cores is not None:
            steps = min(steps, math.floor(self.ceiling_cores / grain_cores + 1e-6))
        return round(max(steps, 1) * grain_cores, 6)


MAX_FAILED_RATIO = 0.01
"""Part of the requests that may fail while a latency target counts as met: two nines are the least
that services commonly promise, and at a p95 or a mean one request in a hundred hardly shows."""


BAND_RATIO = 0.1
"""Half width of the band around a latency target, relative to it, in which a service is satisfied:
of the DQoES paper."""

Latency = Literal["answer", "first-byte", "gap"]
"""Which time of a request: until its whole answer, until the first byte of it (of an LLM the time
to its first token), or between two parts of one answer (the time between tokens)."""


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """Target latency in `seconds`: the mean (`quantile` None), or a quantile."""

    seconds: float
    quantile: float | None = None
    max_failed_ratio: float | None = None
    """Part of the requests that may fail while it counts as met; None: as the settings say."""
    of: Latency = "answer"


class Tier(StrEnum):
    """The two values of an accuracy target, in the order in which they are reached."""

    DELIVER = "deliver"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class AccuracyTarget:
    """Deliver at one value of a metric, finish at a second: a lower one if lower is better."""

    metric: str
    deliver: float
    finish: float
    deadline_s: float | None = None

    def value_of(self, tier: Tier) -> float:
        """The metric's value at which `tier` is reached."""
        return self.deliver if tier is Tier.DELIVER else self.finish


Target = LatencyTarget | AccuracyTarget


@dataclass(frozen=True, slots=True)
class Stop:
    """How to stop a job: a signal, and the grace period before SIGKILL."""

    signal: str = "SIGTERM"
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How to make a job save a checkpoint: signal, timeout, and where it saves."""

    signal: str
    timeout_s: float
    path: str
    shared: bool = False
    """Whether the path is the same storage on every node of a cluster."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Docker's restart policy. It also works while the agent is down."""

    name: Literal["no", "always", "unless-stopped", "on-failure"] = "no"
    max_retries: int = 0
    """Only with on-failure; 0: unlimited."""


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """Compose's healthcheck: command and times; None: the engine's default."""

    test: tuple[str, ...]
    interval_s: float | None = None
    timeout_s: float | None = None
    start_period_s: float | None = None
    retries: int | None = None


@dataclass(frozen=True, slots=True)
class Ulimit:
    """A ulimit of the container's processes."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True, slots=True)
class Logging:
    """The engine's log driver and its options; default: three files of 10 MiB."""

    driver: str = "json-file"
    options: tuple[tuple[str, str], ...] = (("max-file", "3"), ("max-size", "10m"))


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What the container is created from. Any change needs a new container."""

    image: str
    command: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    environment: tuple[tuple[str, str], ...] = ()
    volumes: tuple[str, ...] = ()
    """Compose's short form, `source:target[:mode]`."""
    restart: Restart = Restart()
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_memory_bytes: int | None = None
    """Memory on each of its GPUs; None: all, or the same fraction as its share of their time."""
    gpu_model: str | None = None
    """Text that its GPUs' product name must contain, ignoring case; None: any GPU."""
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
    threads: Literal["fit", "own"] = "fit"
    """Whether dlsched sets the variables by which libraries choose their threads, or the job."""

    @property
    def discreet(self) -> ContainerSpec:
        """A copy to show or store: the environment's values, which may be secrets, are masked."""
        return replace(self, environment=tuple((name, "***") for name, _ in self.environment))


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A parsed job file, or an adopted container's labels."""

    name: str
    container: ContainerSpec
    bounds: Bounds = Bounds()
    weight: float = 1.0
    target: Target | None = None
    stop: Stop = Stop()
    checkpoint: Checkpoint | None = None
    container_digest: str = ""
    """Digest of `container` alone. A different one means: recreate the container."""
    sources: tuple[ProgressSource, ...] = field(default=(), metadata=NOT_IN_DIGEST)
    """Where progress is read from, beside the sidecar. A preset may change with an upgrade."""
    wire: tuple[int, ...] | None = field(default=(), metadata=NOT_IN_DIGEST)
    """The ports whose response times are measured for a latency target; (): all on which it
    listens; None: its packets are not read."""
    digest: str = ""
    """Digest of everything but `owner`, `sources`, `wire` and `nodes`. A different one means that
    the user changed the file."""
    owner: int | None = None
    """uid of the job file's owner; None: the job has no file."""
    failover: Literal["wait", "restart"] = "wait"
    """What becomes of it in a cluster once its node is down."""
    nodes: tuple[tuple[str, str], ...] = field(default=(), metadata=NOT_IN_DIGEST)
    """Labels that a cluster's node must have for it."""
    memory_max_bytes: int | None = None
    """Bound up to which its memory limit may be raised while it runs, from
    `container.memory_bytes` on; None: that stays its limit."""
    background: bool = False
    """Whether it comes last: it has no target, and gets only CPU that no other job uses."""

    @property
    def kept_cores(self) -> float:
        """Cores that other jobs leave to a background job: its `cpus.min`; 0 without one."""
        return self.bounds.floor_cores if self.bounds.promised else 0.0


@dataclass(frozen=True, slots=True)
class OwnerCeilings:
    """Limits for all jobs of one owner together."""

    jobs: int
    cpu_cores: float | None = None
    """Maximum sum of their CPU limits; None: all of capacity."""
    memory_bytes: int | None = None
    gpus: int = 0

"""What users ask for: a job, its container, its target and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from dlsched.model.units import CORES_MIN

NOT_IN_DIGEST = {"digest": False}
"""Metadata of a field that changes no digest: digests on disk are older than it is."""

NAME = r"[a-z0-9][a-z0-9_.-]{1,62}"


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

    floor_cores: float = CORES_MIN
    ceiling_cores: float | None = None
    floor_share: float = 1.0
    """Share of each of its GPUs' time that it is promised; 1: they are its alone."""
    ceiling_share: float = 1.0
    promised: bool = field(default=False, metadata=NOT_IN_DIGEST)
    """Whether the user asks for the floor (`cpus.min`), be it as small as the default."""

    def __post_init__(self) -> None:
        if self.floor_cores > CORES_MIN:
            object.__setattr__(self, "promised", True)


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """Answer within `seconds`: in the mean (`quantile` None), or for that part of requests."""

    seconds: float
    quantile: float | None = None


class Tier(StrEnum):
    """The two values of an accuracy target, in order."""

    DELIVER = "deliver"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class AccuracyTarget:
    """Deliver at one value of a metric, finish at a second (below the first: lower is better)."""

    metric: str
    deliver: float
    finish: float
    deadline_s: float | None = None

    def value_of(self, tier: Tier) -> float:
        """The value of the metric at which that tier is reached."""
        return self.deliver if tier is Tier.DELIVER else self.finish


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

"""Actions on containers, and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.model.spec import Checkpoint, JobSpec, Limits, Stop


@dataclass(frozen=True, slots=True)
class Start:
    """Create and start the job's container under these limits."""

    spec: JobSpec
    limits: Limits
    cpu_shares: int
    source: str = ""
    """The job file. It is written into the container's labels."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it gets."""

    @property
    def job(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Move:
    """Move a running job to other GPUs: save a checkpoint, stop, and continue in a new container
    with the same name, mounts and identity. On failure the job goes back to the old container."""

    container_id: str
    start: Start
    """The new container, with the GPUs that it gets."""
    checkpoint: Checkpoint
    why: str
    saved_before: bool = False
    """True where the job lost a GPU and has saved a checkpoint before. If it does not acknowledge
    the new request, it continues from the saved one."""

    @property
    def job(self) -> str:
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
    """CPU time that it may save up and use beyond its ceiling; None: its original burst."""
    cpu_idle: bool = False
    """Whether it enters the kernel's idle class, where it runs only on otherwise idle CPU."""
    ceiling_cores: float | None = None
    """The ceiling in its spec. A container that dlsched created gets it back on release."""
    gives_back: bool = False
    """Whether it gets everything back that it had, whatever the other fields say."""
    shares_before: int | None = None
    """The shares that it has; None: unknown, as in the idle class."""
    burst_before: float | None = None
    """The burst that it has, in cores; None: unknown."""
    idle_before: bool = False
    """Whether it is in the idle class."""

    @property
    def grows(self) -> bool:
        """Whether it raises the CPU ceiling or, if that stays, the share of GPU time."""
        if self.only_notifies:
            share = self.before.gpu_share
            return share is not None and (self.limits.gpu_share or 0.0) > share
        old, new = self.before.cpu_cores, self.limits.cpu_cores
        return new is None or (old is not None and new > old)

    @property
    def only_notifies(self) -> bool:
        """Whether only the share of GPU time changes, of which the job itself must be notified."""
        before, after = self.before, self.limits
        return before.cpu_cores == after.cpu_cores and before.gpu_share != after.gpu_share


@dataclass(frozen=True, slots=True)
class Memory:
    """Change the memory limit of a running container, its swap limit in step."""

    job: str
    container_id: str
    before_bytes: int
    limit_bytes: int
    why: str
    ceiling_cores: float | None = None
    """As in `Resize`."""

    @property
    def grows(self) -> bool:
        return self.limit_bytes > self.before_bytes


@dataclass(frozen=True, slots=True)
class Remove:
    """Stop a container with its spec's signal and grace period, then remove it."""

    job: str
    container_id: str
    stop: Stop
    lift: Limits | None
    """Set before the stop, since a job ends faster without its ceiling; None: limits stay."""
    why: str


Action = Start | Resize | Memory | Move | Remove


CARRIED_OUT = ("done", "begun")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one action. The end of a `begun` one appears in later observations."""

    action: Action
    status: Literal["done", "begun", "failed", "withheld"]
    detail: str = ""
    retryable: bool = True
    engine_s: float = 0.0
    """Time spent in engine calls."""

    @property
    def ok(self) -> bool:
        """Whether it is done, or begun."""
        return self.status in CARRIED_OUT

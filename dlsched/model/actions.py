"""What is done to containers, and what became of it."""

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
    """The job file, written into the container's labels."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it gets."""

    @property
    def job(self) -> str:
        """The job's name."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Move:
    """Move a running job to other GPUs: it saves itself, is stopped, and continues in a new
    container of the same name, mounts and identity; it goes back to the old one on failure."""

    container_id: str
    start: Start
    """The new container, with the GPUs that it gets."""
    checkpoint: Checkpoint
    why: str
    saved_before: bool = False
    """It lost a GPU, and has saved itself before: without an answer it continues from there."""

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
    """What it may use beyond its ceiling after saving it up; None: what it came with."""
    cpu_idle: bool = False
    """Whether it enters the kernel's idle class: it runs only where nothing else wants to."""
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
        """Whether only the share of GPUs' time changes, which the job itself has to learn."""
        before, after = self.before, self.limits
        return before.cpu_cores == after.cpu_cores and before.gpu_share != after.gpu_share


@dataclass(frozen=True, slots=True)
class Remove:
    """Stop a container as its spec says (signal, grace) and remove it."""

    job: str
    container_id: str
    stop: Stop
    lift: Limits | None
    """Applied first, since a job ends faster without its limit; None: limits stay."""
    why: str


Action = Start | Resize | Move | Remove


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one action; what is `begun` shows in later observations."""

    action: Action
    status: Literal["done", "begun", "failed", "withheld"]
    detail: str = ""
    retryable: bool = True
    engine_s: float = 0.0
    """Time spent in engine calls."""

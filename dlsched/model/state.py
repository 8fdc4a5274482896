"""What is known of jobs and node at one moment: what a policy sees, and what is kept of a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dlsched.model.facts import CheckpointAck, GpuAccess, GpuFact, LatencySketch, Sample
from dlsched.model.resource import CPU, Resource
from dlsched.model.spec import AccuracyTarget, JobSpec, Limits

OFTEN_S = 1.0
"""The shortest time between two reports that is told apart."""
MISSING_GAPS = 2.5
"""Usual gaps between reports: one that comes late leaves two between a pair of cycles."""


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
    every_s: float = OFTEN_S
    """Usual seconds between two reports of requests, at least `OFTEN_S`."""

    @property
    def missing_s(self) -> float:
        """After a longer silence, reports of requests are missing."""
        return MISSING_GAPS * self.every_s


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
    cpu_wait_ratio: float | None = None
    """Part of the last ten seconds or so in which its threads waited for a CPU."""
    gpu_ratio: float | None = None
    """Part of its GPUs' time that it used since the cycle before, in the mean over them."""
    gpu_window_ratio: float | None = None
    """The same over the time of `Progress.window`."""
    gpu_memory_bytes: int | None = None
    """On all of its GPUs together."""


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


class JobState(StrEnum):
    """A job's lifecycle; the table of transitions is at the head of `control.ledger.lifecycle`."""

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
            and not self.spec.bounds.promised
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
    resource: Resource = CPU
    """What is divided. Fields named `cores` are amounts of it: of a GPU's time, parts of 1."""

    @property
    def running(self) -> tuple[JobView, ...]:
        """The jobs whose limits can be decided now."""
        running = JobState.RUNNING
        return tuple([job for job in self.jobs if job.state is running])

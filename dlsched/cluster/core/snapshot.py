"""What a cluster policy knows and decides: nodes, jobs, moves under way, placements.

Times are seconds on the controller's monotonic clock, amounts of CPU are cores, work is CPU time in
core-seconds. Work that is left says what a job needs on a node of speed 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Protocol

from dlsched.model.units import CORES_MIN

_ID = re.compile("(sha256:)?[0-9a-f]{12,64}")
"""Of an image."""


class NodeState(StrEnum):
    """Whether a node takes jobs."""

    READY = "ready"
    DRAINING = "drain"
    """Its jobs move away, and none comes."""
    SILENT = "silent"
    """Its agent has not reported lately. Its jobs stay its own."""


class Sharing(StrEnum):
    """How a node's own policy shares its cores among jobs: all that a forecast needs of it."""

    FAIR = "fair"
    """By weight, as under plain Docker."""
    SHORTEST = "shortest"
    """The job with the least work left first; before it those so long that they would end last."""

    @classmethod
    def of(cls, policy: str) -> Sharing:
        """That of a node's policy, by its name, maybe with parameters."""
        return cls.FAIR if policy.partition("?")[0] in ("none", "fair") else cls.SHORTEST


class Growth(StrEnum):
    """How fast the metric of a training still changes, compared with its own peak."""

    PROGRESSING = "progressing"
    WATCHING = "watching"
    """Slow once."""
    CONVERGED = "converged"
    """Slow twice in a row."""


class Evaluation(NamedTuple):
    """A value of the metric that a training reported."""

    at_s: float
    value: float


class Left(NamedTuple):
    """Work until a job ends, in core-seconds: the most likely value in the 80 % interval."""

    low_core_s: float
    mid_core_s: float
    high_core_s: float


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One node, as its agent last reported it."""

    name: str
    capacity_cores: float
    foreign_cores: float = 0.0
    """Of the capacity, used by what is no job of the cluster."""
    memory_free_bytes: int | None = None
    """None: unknown, so memory refuses no job."""
    gpus_free: int = 0
    images: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    state: NodeState = NodeState.READY
    sharing: Sharing = Sharing.SHORTEST
    age_s: float = 0.0
    """Age of the report."""
    speed: float = 1.0
    """Steps per core-second of a job here, relative to the cluster's typical node."""

    def has_image(self, image: str) -> bool:
        """Whether it is there, or that is not known: which are, or an image by its digest or id."""
        if not self.images or "@" in image or _ID.fullmatch(image):
            return True
        return image in self.images or _tagged(image) in self.images

    @property
    def free_cores(self) -> float:
        """Cores for jobs."""
        return max(self.capacity_cores - self.foreign_cores, 0.0)


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """One job of the cluster, queued (`node` None), running, or moving."""

    name: str
    image: str = ""
    arrived_s: float = 0.0
    node: str | None = None
    """Where it runs; during a move the source until the target owns it, then the target."""
    weight: float = 1.0
    floor_cores: float = CORES_MIN
    memory_bytes: int | None = None
    gpus: int = 0
    requires: Mapping[str, str] = field(default_factory=dict)
    """Labels that its node must have."""
    pulls: bool = True
    """Whether its image may be pulled where it is missing."""
    barred: Mapping[str, str] = field(default_factory=dict)
    """Nodes that could not start it lately, and why."""
    left: Left | None = None
    """None: nothing is known, not even of jobs like it."""
    done_core_s: float = 0.0
    parallel_cores: float = 1.0
    """The most that it can use."""
    granted_cores: float = 0.0
    """What it used lately."""
    has_target: bool = True
    """Whether it is a training whose metric says how far it is."""
    evaluations: tuple[Evaluation, ...] = ()
    """Those since the last round, the oldest first; at most `EVALUATIONS_MAX`."""
    reports: int = 0
    steps_per_core_s: float | None = None
    """Measured on its present node; None: too few reports there."""
    unmovable: str | None = None
    """Why it cannot be moved to another node; None: it can."""
    pause_s: float = 0.0
    """How long a move would stop it: checkpoint, transfer, start, and the steps that it repeats."""
    moves: int = 0
    """Moves that were completed."""
    placed_at_s: float = 0.0
    """When it began on its present node."""
    rests_until_s: float = 0.0
    """Not moved before this time, after a move that failed or was undone."""


EVALUATIONS_MAX = 64
"""Of each job in one snapshot: about six a second between rounds of 10 s."""


@dataclass(frozen=True, slots=True)
class Transit:
    """A move under way."""

    job: str
    source: str
    target: str
    ends_s: float
    """When the job is expected to run again."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Everything a cluster policy may know; nodes and jobs are sorted by name."""

    round: int
    now_s: float
    nodes: tuple[NodeSummary, ...] = ()
    jobs: tuple[ClusterJob, ...] = ()
    """Those that have a node."""
    queue: tuple[ClusterJob, ...] = ()
    """Those that wait for a node, in order of arrival."""
    moving: tuple[Transit, ...] = ()


class Move(NamedTuple):
    """A running job is to go on elsewhere."""

    job: str
    target: str
    undo: bool = False
    """Whether it goes back to where its last move took it from, as it is slower here."""


FORECAST_MAX_S = 1e100
"""A huge load on a tiny node ends late, but no sum of such times is infinite."""


class Alternative(NamedTuple):
    """A node to which a policy considered to move a job, and did not."""

    node: str
    refused: str
    """The rule that refused it, with its figures."""
    gain_s: float | None = None
    """What the move would have gained by forecast; None: that was not asked, or is beyond
    `FORECAST_MAX_S`."""


ALTERNATIVES_MAX = 3
"""Of each job that are kept, the best first."""

ClusterMemory = object
"""A policy's memory: a frozen dataclass of plain values; None at the start."""


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    """Where queued jobs start and which running jobs move. What it leaves out stays as it is."""

    place: Mapping[str, str] = field(default_factory=dict)
    """Node by queued job."""
    moves: tuple[Move, ...] = ()
    """The most urgent first."""
    why: Mapping[str, str] = field(default_factory=dict)
    """A reason by job."""
    memory: ClusterMemory | None = None
    next_s: float = 10.0
    """Seconds until the next round; an arrival, an exit or a changed node asks immediately."""
    forecasts_s: Mapping[str, float] = field(default_factory=dict)
    """By job that moves: how much later it ends itself than if it stayed; negative: earlier. What
    came of the move is compared with it."""
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    """By running job, the best first."""


class ClusterPolicy(Protocol):
    """A pure function: same snapshot and memory, same decision. It uses no clock, files, logging or
    randomness.

    `Parameters` is a frozen dataclass whose fields each have a default and a docstring with unit
    and reason.

    Guards (see `guards`) hold every policy to the same rules: a job starts only where it fits, and
    moves rarely, one at a time from and to a node.
    """

    Parameters: ClassVar[type[Any]]

    def __init__(self, parameters: Any) -> None: ...

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        """Placements of queued jobs, moves of running ones, and the reasons."""


def _tagged(image: str) -> str:
    """The name by which an engine lists it."""
    name = image.removeprefix("index.").removeprefix("docker.io/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"

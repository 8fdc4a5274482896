"""What a manager's controller reports to people, and `/v1/cluster` answers.

Standard dataclasses. None: unknown, or there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.api.schema import Value


@dataclass(frozen=True)
class NodeRow(Value):
    """One node that belongs to the cluster."""

    name: str
    host: str
    address: str
    state: str
    """ready, drain, silent, or down where the store says so."""
    jobs: int
    used_cores: float | None
    """By jobs of the cluster and by everything else."""
    capacity_cores: float | None
    ends_in_s: float | None
    """Until its last job is done, by forecast."""
    report_age_s: float | None
    problem: str
    """Why it does not answer, or refuses an order; usually empty."""


@dataclass(frozen=True)
class EventRow(Value):
    """Something that happened to a job."""

    at: str
    """RFC 3339, UTC."""
    text: str


@dataclass(frozen=True)
class MoveRow(Value):
    """One move of a job to another node."""

    at: str
    """When the job was asked to leave. RFC 3339, UTC."""
    source: str
    target: str
    outcome: str
    """under way, completed, failed, withdrawn (the job ended before, or was no longer desired), or
    undone: completed, and taken back as the job was slower."""
    why: str
    """The policy's reason; empty: a person asked for it, or it is not known."""
    problem: str
    """Why it failed or was undone."""
    forecast_s: float | None
    """How much later the job ends itself by the policy's forecast; negative: earlier. None: there
    is none."""
    measured_s: float | None
    """The same by what was measured: when the job ends by its steps a second now, or has ended, and
    when it would have by those before the move. None: not known."""
    pending: bool
    """Whether `measured_s` may still change, or become known."""


@dataclass(frozen=True)
class AlternativeRow(Value):
    """A node to which the policy considered to move a job, and did not."""

    node: str
    refused: str
    """The rule that refused it."""
    gain_s: float | None
    """What the policy's forecast would have gained, of all jobs; None: not asked."""


@dataclass(frozen=True)
class JobRow(Value):
    """One job that has a node, or ended."""

    name: str
    node: str
    target: str | None
    """The node to which it moves, or that prepares for it."""
    state: str
    epoch: int
    since_s: float
    """How long it has been so, as far as this controller knows."""
    moves: int
    goal: str
    """Its target, as `accuracy 0.9, 0.97`; empty: it has none."""
    measured: float | None
    """The last value of the target's metric."""
    granted_cores: float | None
    left_core_s: float | None
    """The work until its end."""
    unmovable: str
    """Why it cannot be moved; empty: it can."""
    why: str
    events: tuple[EventRow, ...]
    """The latest, the newest last; those since the controller began."""
    moved: tuple[MoveRow, ...]
    """The latest moves, the newest last; those that this controller has begun."""
    alternatives: tuple[AlternativeRow, ...]
    """The best first. None of a policy that does not say them, and of a job that it did not
    consider."""


@dataclass(frozen=True)
class QueueRow(Value):
    """One job that waits for a node."""

    name: str
    waits_s: float
    why: str


@dataclass(frozen=True)
class ClusterTotals(Value):
    """Counts since the controller began."""

    completed: int
    """Moves, also those that were undone later."""
    failed: int
    undone: int


@dataclass(frozen=True)
class ClusterStatus(Value):
    """The whole snapshot."""

    schema_version: int
    instance: str
    manager: str
    """Whose controller wrote this."""
    leader: str
    """The manager whose controller acts; empty: unknown."""
    policy: str
    written_at: str = ""
    observed_at: str = ""
    """When nodes and jobs were as they are here; empty: never, as another manager leads."""
    nodes: tuple[NodeRow, ...] = ()
    jobs: tuple[JobRow, ...] = ()
    queue: tuple[QueueRow, ...] = ()
    asked: tuple[str, ...] = ()
    """Requests of people that are not done yet, and what they wait for."""
    rejected: tuple[str, ...] = ()
    """Problems of this manager's job files, and of others' submissions."""
    alarms: tuple[str, ...] = ()
    totals: ClusterTotals | None = None
    """None: this controller does not lead, or has not yet."""


@dataclass(frozen=True)
class ClusterAnswer(Value):
    """What the controller on this host last reported."""

    schema_version: int
    cluster: ClusterStatus | None
    """None: no controller of a cluster has run on this host."""
    written_age_s: float | None
    """Since the controller wrote it. Above a minute: it has ended, or hangs."""
    observed_age_s: float | None
    """Since nodes and jobs were so."""

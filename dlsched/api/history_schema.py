"""What `/v1/history` answers: a range of the journal as curves, with its changes and events.
Versioned as `schema` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlsched.api.schema import Value
from dlsched.api.why_schema import EffectStatus
from dlsched.store.journal.changes import Change, Event


@dataclass(frozen=True, eq=False, repr=False)
class NodeCurves(Value):
    """The node, a value for each of `times`: the mean of the step. None: nothing is recorded."""

    capacity_cores: tuple[float | None, ...]
    given_cores: tuple[float | None, ...]
    """Sum of the jobs' ceilings."""
    used_cores: tuple[float | None, ...]
    """Used by the jobs."""
    foreign_cores: tuple[float | None, ...]
    """Used by everything else on the host."""
    memory_bytes: tuple[float | None, ...]
    """Memory that the jobs use."""
    shadow_cores: tuple[float | None, ...]
    """Sum of the ceilings that the shadow policy would set; a job without one counts with its use.
    None: no shadow policy ran."""


@dataclass(frozen=True, eq=False, repr=False)
class JobCurves(Value):
    """One job, a value for each of `times`: the mean of the step. None: nothing was measured."""

    ratio: tuple[float | None, ...]
    """Measured latency over target."""
    ratio_low: tuple[float | None, ...]
    """The least of the step."""
    ratio_high: tuple[float | None, ...]
    """The greatest of the step."""
    measured_s: tuple[float | None, ...]
    """Measured latency."""
    metric: tuple[float | None, ...]
    """Last value of the accuracy target's metric."""
    limit_cores: tuple[float | None, ...]
    """Its ceiling, while it had one."""
    usage_cores: tuple[float | None, ...]


@dataclass(frozen=True, eq=False, repr=False)
class History(Value):
    """A range of the journal, in steps."""

    schema_version: int
    from_s: float
    to_s: float
    """Unix seconds; the range ends before it."""
    step_s: float
    times: tuple[float, ...]
    """Start of each step in unix seconds, by the clock of the time."""
    node: NodeCurves
    changes: tuple[Change, ...]
    """The last ones of the range, oldest first."""
    changes_left_out: int
    """Number of older ones in the range."""
    effects: tuple[EffectStatus | None, ...]
    """One for each of `changes`. None: it has none, or it is not worked out yet: each answer works
    out a few more, newest first."""
    events: tuple[Event, ...]
    """The last ones of the range, oldest first."""
    events_left_out: int
    """Number of older ones in the range."""
    notes: tuple[str, ...]
    """What could not be read, or is coarser than asked, a line each."""
    jobs: Mapping[str, JobCurves]
    """By name, those that the range has a record of."""

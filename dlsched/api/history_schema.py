"""What `/v1/history` answers: a range of the journal as curves, with its changes and events.
Versioned as `schema` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlsched.api.schema import Value
from dlsched.api.why_schema import EffectStatus
from dlsched.store.journal.history import Curve
from dlsched.store.journal.rows import Change, Event


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
    node: Mapping[str, Curve]
    """The node's curves by name, a value for each of `times`: the mean of the step, null where
    nothing is recorded. `capacity_cores`; `given_cores`, the sum of the jobs' ceilings;
    `used_cores` and `memory_bytes` of the jobs; `foreign_cores`, used by everything else on the
    host; `shadow_cores`, the ceilings that the shadow policy would set, where a job without one
    counts with its use."""
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
    jobs: Mapping[str, Mapping[str, Curve]]
    """By job, those that the range has a record of: curves by name, as the node's. `ratio`, latency
    over target; `ratio_low` and `ratio_high`, its least and greatest of the step; `measured_s`, the
    latency; `metric`, the last value of the accuracy target's; `limit_cores`, the ceiling, while
    there was one; `usage_cores`."""

"""What `/v1/stream` sends beside the Status: what happened in a cycle, and a point of every curve.
Versioned as `schema` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlsched.api.schema import Value
from dlsched.store.journal.rows import Change, Event


@dataclass(frozen=True, eq=False, repr=False)
class AlarmEventStatus(Value):
    """An alarm that began or ended."""

    cycle: int
    now_s: float
    wall_time: str
    source: str
    """Its subject: a job, a GPU, a file, or a component. Empty: an alarm of an earlier run."""
    key: str
    """Its stable key. Empty: an alarm of an earlier run."""
    kind: str
    """raised or cleared."""
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class CycleEvents(Value):
    """What happened in one cycle. The kinds of events are those of `why`, and `missed` (the latency
    is more than 10 % above the target) and `met` (it is not above the target any more)."""

    schema_version: int
    cycle: int
    changes: tuple[Change, ...]
    events: tuple[Event, ...]
    alarms: tuple[AlarmEventStatus, ...]


@dataclass(frozen=True, eq=False, repr=False)
class JobPoint(Value):
    """One job in one cycle. Below REQUESTS_MIN requests `ratio` is None."""

    name: str
    state: str
    measured_s: float | None
    requests: int
    ratio: float | None
    """Measured latency over target."""
    metric: float | None
    """Last value of the accuracy target's metric."""
    limit_cores: float | None
    """Its ceiling, while it runs. None: none."""
    usage_cores: float | None


@dataclass(frozen=True, eq=False, repr=False)
class ShadowPoint(Value):
    """What the shadow policy would set in one cycle; none of it is done."""

    policy: str
    limit_cores: Mapping[str, float | None]
    """Ceilings of the running jobs, by name. None: none."""


@dataclass(frozen=True, eq=False, repr=False)
class CyclePoint(Value):
    """One cycle, as a point of every curve."""

    schema_version: int
    cycle: int
    now: str
    """RFC 3339, UTC."""
    now_s: float
    """Monotonic seconds of the daemon, which go on over its restart."""
    capacity_cores: float
    given_cores: float
    used_cores: float
    foreign_cores: float | None
    jobs: tuple[JobPoint, ...]
    shadow: ShadowPoint | None
    """None: no shadow policy runs, or it fails."""

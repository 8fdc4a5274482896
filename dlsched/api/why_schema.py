"""What `/v1/jobs/NAME/why` answers: the job, what the last cycle decided for it, and its history.
Versioned as `schema` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlsched.api.schema import HostCpuStatus, JobStatus, Value
from dlsched.model.spec import Limits
from dlsched.store.journal.rows import Change, Event


@dataclass(frozen=True, eq=False, repr=False)
class OutcomeStatus(Value):
    """What one action came to."""

    action: Mapping[str, Any]
    """`kind` (start, resize, memory, move or remove) and everything else of the action."""
    status: str
    """done, begun, failed or withheld."""
    detail: str
    retryable: bool
    engine_s: float


@dataclass(frozen=True, eq=False, repr=False)
class ShadowStatus(Value):
    """What the shadow policy would have given a job; none of it is done."""

    policy: str
    why: str | None
    guard: str | None
    limits: Limits | None
    trouble: str | None


@dataclass(frozen=True, eq=False, repr=False)
class NowStatus(Value):
    """What the last cycle decided for a job and did to it."""

    why: str | None
    guard: str | None
    """What a guard changed of the decision."""
    limits: Limits | None
    outcomes: tuple[OutcomeStatus, ...]
    shadow: ShadowStatus | None


@dataclass(frozen=True, eq=False, repr=False)
class EffectStatus(Value):
    """What was measured of a latency target in the 30 s before a `resize` and from 10 to 40 s after
    it. No cause is claimed."""

    cycle: int
    """That of the change."""
    verdict: str
    """helped, slower, no effect, too few requests, not judged (the job was changed again before the
    40 s were over) or not yet."""
    text: str
    """The same in one line, with the numbers."""
    before_s: float | None
    after_s: float | None
    """The mean or the target's quantile."""
    requests_before: int
    requests_after: int
    others: int
    """Number of other jobs that were changed in those 70 s."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Value):
    """What `dlsched why -o json` prints: the job, the last cycle, and its history, newest first."""

    schema_version: int
    job: JobStatus | None
    """None: the job is gone, and only its history is left."""
    now: NowStatus
    changes: tuple[Change, ...]
    events: tuple[Event, ...]
    effects: tuple[EffectStatus, ...]
    """Of the last changes, while the job has a latency target."""
    host_cpu: HostCpuStatus | None
    """Who uses the host's CPU beside this job, other jobs too, while it misses its target."""

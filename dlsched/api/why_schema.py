"""What `/v1/jobs/NAME/why` answers: the job, what the last cycle decided for it, and its history.
Versioned as `schema` is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlsched.api.schema import HostCpuStatus, JobStatus, Value


@dataclass(frozen=True, eq=False, repr=False)
class LimitsStatus(Value):
    """Limits of a running job; None: none."""

    cpu_cores: float | None
    gpu_share: float | None


@dataclass(frozen=True, eq=False, repr=False)
class OutcomeStatus(Value):
    """What one action came to."""

    action: Mapping[str, Any]
    """`kind` (start, resize, move or remove) and everything else of the action."""
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
    limits: LimitsStatus | None
    trouble: str | None


@dataclass(frozen=True, eq=False, repr=False)
class NowStatus(Value):
    """What the last cycle decided for a job and did to it."""

    why: str | None
    guard: str | None
    """What a guard changed of the decision."""
    limits: LimitsStatus | None
    outcomes: tuple[OutcomeStatus, ...]
    shadow: ShadowStatus | None


@dataclass(frozen=True, eq=False, repr=False)
class ChangeStatus(Value):
    """A recorded action, with the ceilings and shares before and after it."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    before_cores: float | None
    after_cores: float | None
    why: str
    guard: str
    status: str
    detail: str
    before_share: float | None
    after_share: float | None
    gpus: str
    """UUIDs, comma separated."""
    expected_s: float | None
    """The latency that the policy expected of a `resize`."""
    changed: str
    """What changed, and nothing else, such as `limit 2.000 -> 1.500 cores, CPU weight 1024 -> 205`,
    `limit of 2.000 cores removed` or `idle class on`."""


@dataclass(frozen=True, eq=False, repr=False)
class EventStatus(Value):
    """Something else that happened to a job, such as a change of its state."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    before: str | None
    after: str | None
    reason: str


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
    changes: tuple[ChangeStatus, ...]
    events: tuple[EventStatus, ...]
    effects: tuple[EffectStatus, ...]
    """Of the last changes, while the job has a latency target."""
    host_cpu: HostCpuStatus | None
    """Who uses the host's CPU beside this job, other jobs too, while it misses its target."""

"""The report of one cycle, read by journal, API, pages and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dlsched.model.actions import Outcome
from dlsched.model.alarms import Alarm
from dlsched.model.decision import Decision
from dlsched.model.forecast import Forecast
from dlsched.model.spec import Limits
from dlsched.model.state import Delivered, Snapshot


@dataclass(frozen=True, slots=True)
class Shadow:
    """What a shadow policy would have done in this cycle. Nothing of it is applied."""

    policy: str
    decision: Decision | None = None
    """None: it was not asked in this cycle, or failed."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """Its last decision after the guards, based on the state that the acting policy produced."""
    why: Mapping[str, str] = field(default_factory=dict)
    guarded: Mapping[str, str] = field(default_factory=dict)
    """What a guard changed, by job, in one sentence."""
    trouble: str | None = None
    """How it failed since its last decision, or for good."""


@dataclass(frozen=True, slots=True)
class HookRun:
    """The result of the operator's command for one delivery."""

    delivered: Delivered
    status: Literal["done", "failed", "unstarted", "aborted"]
    """The next agent tries `unstarted` and `aborted` (by the agent's end) again."""
    detail: str


@dataclass(frozen=True, slots=True)
class CycleReport:
    """Everything that happened in one cycle."""

    snapshot: Snapshot
    policy: str
    decision: Decision | None = None
    """None: the policy was not asked in this cycle."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """The decision after the guards."""
    guarded: Mapping[str, str] = field(default_factory=dict)
    """What a guard changed, by job, in one sentence."""
    outcomes: tuple[Outcome, ...] = ()
    rejected: tuple[RejectedFile, ...] = ()
    alarms: tuple[str, ...] = ()
    """The texts of `raised`."""
    raised: tuple[Alarm, ...] = ()
    """Current alarms with keys. The journal keeps only their texts."""
    engine_ok: bool = True
    wall_time: str = ""
    """RFC 3339 UTC, for display only."""
    phase_s: Mapping[str, float] = field(default_factory=dict)
    """CPU time of the daemon's loop, by phase."""
    shadow: Shadow | None = None
    hooks: tuple[HookRun, ...] = ()
    """Runs of the operator's command that ended since the cycle before."""
    outlooks: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    """Forecasts for each job's targets, from the policy's last decision."""


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A rejected job file, with every reason."""

    file: str
    job: str | None
    problems: tuple[str, ...]

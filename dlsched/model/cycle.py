"""The report of one cycle: what journal, API, pages and tests read."""

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
    """What a shadow policy would have done in this cycle; nothing of it is carried out."""

    policy: str
    decision: Decision | None = None
    """None: it was not asked in this cycle, or failed."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """Its last decision after the guards, from the state that the acting policy led to."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reasons of its last decision, by job."""
    guarded: Mapping[str, str] = field(default_factory=dict)
    """What a guard changed, by job, in one sentence."""
    trouble: str | None = None
    """How it failed, since its last decision or for good."""


@dataclass(frozen=True, slots=True)
class HookRun:
    """What became of the operator's command for one delivery."""

    delivered: Delivered
    status: Literal["done", "failed", "unstarted", "aborted"]
    """`unstarted` and `aborted` (by the agent's end) are tried again by the next agent."""
    detail: str


@dataclass(frozen=True, slots=True)
class CycleReport:
    """One cycle, whole: what journal, API, pages and tests all read."""

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
    """What is wrong now, with keys. Not in the journal, which keeps the texts."""
    engine_ok: bool = True
    wall_time: str = ""
    """RFC 3339 UTC, for display only."""
    phase_s: Mapping[str, float] = field(default_factory=dict)
    """CPU time of the loop by phase."""
    shadow: Shadow | None = None
    """The shadow policy's part, where there is one."""
    hooks: tuple[HookRun, ...] = ()
    """Runs of the operator's command that ended since the cycle before."""
    outlooks: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    """Of the policy's last decision: what can be expected of each job's targets."""


@dataclass(frozen=True, slots=True)
class RejectedFile:
    """A job file that is not used, and every reason why."""

    file: str
    job: str | None
    problems: tuple[str, ...]

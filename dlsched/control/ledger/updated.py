"""The result of a ledger update: a snapshot, and what the facts call for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.control.gpus.queue import GpuQueue, Turn
from dlsched.control.gpus.rebalance import Wanted
from dlsched.control.ledger.desired import Desired
from dlsched.model.actions import Remove
from dlsched.model.alarms import Alarm
from dlsched.model.spec import JobSpec
from dlsched.model.state import Delivered, Ended, Snapshot

Placements = Mapping[str, tuple[str, ...]]
"""By job, the UUIDs of its GPUs."""


@dataclass(frozen=True, slots=True)
class State:
    """A snapshot, and what facts and job files call for."""

    snapshot: Snapshot
    desired: Desired = field(default_factory=Desired)
    """The input of this update."""
    engine_ok: bool = True
    starts: tuple[JobSpec, ...] = ()
    """Admitted jobs, in queue order."""
    placements: Placements = field(default_factory=dict)
    """GPUs of the starts that get any."""
    move: Wanted | None = None
    """The job that should be on other GPUs now; None: none."""
    removals: tuple[Remove, ...] = ()
    ended: tuple[Ended, ...] = ()
    """Jobs that ended by themselves, to be recorded."""
    lifts: tuple[str, ...] = ()
    """Ended jobs whose file changed or that run again. Their records no longer count."""
    delivered: tuple[Delivered, ...] = ()
    """Jobs that reached a tier, to be recorded and announced."""
    undelivered: tuple[str, ...] = ()
    """Jobs whose delivery no longer counts: another container or target, or the job is gone."""
    alarms: tuple[Alarm, ...] = ()


@dataclass(slots=True)
class Queued:
    """The result of one admission pass."""

    starts: tuple[JobSpec, ...] = ()
    placements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    verdicts: Mapping[str, Turn] = field(default_factory=dict)
    gpus: GpuQueue | None = None

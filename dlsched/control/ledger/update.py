"""What one update of the ledger came to: a snapshot, and what the facts call for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.control.admission import Verdict
from dlsched.control.gpus.queue import GpuQueue
from dlsched.model.actions import Remove
from dlsched.model.spec import JobSpec
from dlsched.model.state import Delivered, Ended, Snapshot


@dataclass(frozen=True, slots=True)
class Folded:
    """A snapshot, and what the facts call for."""

    snapshot: Snapshot
    starts: tuple[JobSpec, ...] = ()
    """Admitted, in order of their place in the queue."""
    placements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the GPUs of each start that gets any."""
    moves: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """Jobs that should be on other GPUs: their UUIDs, and why. Only such as can be moved."""
    removals: tuple[Remove, ...] = ()
    ended: tuple[Ended, ...] = ()
    """Jobs that came to an end by themselves: to be recorded."""
    lifts: tuple[str, ...] = ()
    """Ended jobs whose file changed since, or that run again: their records no longer hold."""
    delivered: tuple[Delivered, ...] = ()
    """Jobs that reached a tier: to be recorded and told."""
    undelivered: tuple[str, ...] = ()
    """Jobs whose delivery no longer holds: another container, another target, or gone."""
    alarms: tuple[str, ...] = ()


@dataclass(slots=True)
class Queued:
    """What one pass through the queue came to."""

    starts: tuple[JobSpec, ...] = ()
    placements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    gpus: GpuQueue | None = None

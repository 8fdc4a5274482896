"""Rows for quick questions: changes of limits, and events in a job's life. Apart from what fills
them, which a program that only shows them would otherwise load."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One action that changed something or tried to. Cores are ceilings; None: no ceiling."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    """start, resize, memory (its memory limit), move or remove."""
    before_cores: float | None
    after_cores: float | None
    why: str
    guard: str
    """How a guard altered the decision; empty: it did not."""
    status: str
    """done, begun, failed or withheld."""
    detail: str
    before_share: float | None = None
    """Share of its GPUs' time; None: not divided."""
    after_share: float | None = None
    gpus: str = ""
    """UUIDs of the GPUs assigned to it, comma separated; empty: none, or unchanged."""
    expected_s: float | None = None
    """Latency that the policy expected of a `resize`; None: none, or a guard changed it."""
    changed: str = ""
    """What a `start` set, or a `resize` or `memory` changed, and nothing else, such as `limit 2.000
    -> 1.500 cores, CPU weight 1024 -> 205` or `idle class on`; empty: nothing that is known."""


@dataclass(frozen=True, slots=True)
class Event:
    """A job arrived, left or changed state, or the forecast of one of its targets changed."""

    cycle: int
    now_s: float
    wall_time: str
    job: str
    kind: str
    """arrived, left, state, blind, sighted, idle, busy (again), unclear, gpu-trouble, gpu-well,
    deliverable, finish, diverged, finite (again), bottleneck, no-bottleneck, oom-kill, hook (the
    operator's command has run), or a target's new forecast: crowded, impossible, possible."""
    before: str | None
    after: str | None
    reason: str

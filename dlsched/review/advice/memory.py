"""What memory limit a recorded container needed, from the most that it held."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.control.memory_limits import BACK_RATIO, MOST_FACTOR
from dlsched.model.state import JobView
from dlsched.model.units import counted, render_bytes

_GRAIN_BYTES = 64 << 20
"""Limits are recommended in these steps."""


@dataclass(frozen=True, slots=True)
class MemoryAdvice:
    """The memory of one container: what it used, and the key that it should have."""

    most_bytes: int
    """The most that it held, without page cache."""
    limit_bytes: int | None
    """Its last limit; None: none."""
    oom_kills: int
    """Processes of it that the kernel killed for want of memory."""
    min_bytes: int
    max_bytes: int

    @property
    def key(self) -> str:
        """The value of `memory` in a job file."""
        return f"{{min: {_size(self.min_bytes)}, max: {_size(self.max_bytes)}}}"

    @property
    def text(self) -> str:
        """What was used and what is recommended, in one line."""
        limit = "without a limit"
        if self.limit_bytes is not None:
            limit = f"of a limit of {render_bytes(self.limit_bytes)}"
        kills = f", {counted(self.oom_kills, 'OOM kill')}" if self.oom_kills else ""
        return (
            f"memory: at most {render_bytes(self.most_bytes)} used {limit}{kills}; "
            f"`memory: {self.key}`"
        )


class MemoryUses:
    """Gathers the memory of one job's container, cycle by cycle."""

    def __init__(self, container: str | None) -> None:
        self.container = container
        self._most = 0
        self._limit: int | None = None
        self._kills = 0
        self._kills_before: int | None = None

    def take(self, view: JobView) -> None:
        """Add a cycle."""
        use = view.memory
        # Journals of earlier releases have only the working set.
        held = use.working_set_bytes if use.held_bytes is None else use.held_bytes
        self._most = max(self._most, held or 0)
        self._limit = use.limit_bytes
        if use.oom_kills is not None:
            if self._kills_before is not None:
                self._kills += max(use.oom_kills - self._kills_before, 0)
            self._kills_before = use.oom_kills

    def advice(self) -> MemoryAdvice | None:
        """The recommendation; None: nothing was recorded."""
        if not self._most:
            return None
        least: float = BACK_RATIO * self._most
        if self._kills:  # it would have held more
            least = max(least, BACK_RATIO * (self._limit or 0))
        min_bytes = math.ceil(least / _GRAIN_BYTES) * _GRAIN_BYTES
        return MemoryAdvice(
            self._most, self._limit, self._kills, min_bytes, round(MOST_FACTOR * min_bytes)
        )


def _size(size_bytes: int) -> str:
    """As a job file has it."""
    gib = size_bytes / (1 << 30)
    return f"{gib:g}GiB" if gib.is_integer() else f"{size_bytes >> 20}MiB"

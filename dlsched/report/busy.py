"""How long the device was busy with a job's steps: by CUDA events where there are any, else by
the clock.

Owns events on the current stream. It must not import torch, nor wait for the device before `end`.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import deque
from typing import Any, Callable, Deque, Optional

_FADING = 0.95
"""With each step, of the longest: a job of short steps is to know that some are long."""


def cuda() -> Optional[Any]:
    """torch's CUDA, if the job has imported it and uses it already."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            return torch.cuda
    return None


def captures() -> bool:
    """Whether the job is recording a CUDA graph: events would become part of it, or spoil it."""
    found = cuda()
    with contextlib.suppress(Exception):
        return found is not None and bool(found.is_current_stream_capturing())
    return False


class Clocked:
    """By the clock: right for steps that wait for their results."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = clock()

    def step(self) -> None:
        """A step was made."""

    def so_far_s(self) -> float:
        """Time since the beginning."""
        return self._clock() - self._began_s

    def end_s(self) -> float:
        """The same, at the end."""
        return self.so_far_s()


class Timed:
    """By CUDA events: the device tells how long, and the job goes on while it computes."""

    def __init__(self, found: Any, step_s: Optional[float]) -> None:
        """`step_s`: what a long step takes, if that is known."""
        self._found = found
        self._done_s = 0.0
        self._pending: Deque[Any] = deque()
        self.step_s = step_s
        self._begin = self._last = self._event()
        self._begin.record()

    def step(self) -> None:
        """A step was launched; it need not be done."""
        self._last = self._event()
        self._last.record()
        self._pending.append(self._last)

    def so_far_s(self) -> float:
        """Time of the steps launched so far: as measured; those under way may all be long ones."""
        while self._pending and self._pending[0].query():
            before_s = self._done_s
            self._done_s = self._begin.elapsed_time(self._pending.popleft()) / 1e3
            self.step_s = max(self._done_s - before_s, _FADING * (self.step_s or 0.0))
        if self._pending and self.step_s is None:
            # Nobody knows how much has been launched: better to wait for it.
            return math.inf
        return self._done_s + (self.step_s or 0.0) * len(self._pending)

    def end_s(self) -> float:
        """Wait for the device; the time of all steps."""
        if not self._pending:
            self.step()
        self._last.synchronize()
        self.so_far_s()
        return float(self._begin.elapsed_time(self._last)) / 1e3

    def _event(self) -> Any:
        # Blocking: a wait that spins would spend the job's CPU quota.
        return self._found.Event(enable_timing=True, blocking=True)

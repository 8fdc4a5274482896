"""Measures how long the device was busy with a job's steps, by CUDA events or else by the clock. It
never imports torch, and waits for the device only in `end_s`."""

from __future__ import annotations

import contextlib
import math
import sys
from collections import deque
from typing import Any, Callable, Deque, Optional

_FADING = 0.95
"""Decay of the longest step, so that rare long steps are remembered."""


def cuda() -> Optional[Any]:
    """torch's CUDA, if the job has already imported and initialised it."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            return torch.cuda
    return None


def captures() -> bool:
    """Whether the job is recording a CUDA graph, which events would enter or spoil."""
    found = cuda()
    with contextlib.suppress(Exception):
        return found is not None and bool(found.is_current_stream_capturing())
    return False


class Clocked:
    """Measures by the clock: right for steps that wait for their results."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = clock()

    def step(self) -> None:
        """Do nothing."""

    def so_far_s(self) -> float:
        """Time since the beginning."""
        return self._clock() - self._began_s

    def end_s(self) -> float:
        """Time at the end."""
        return self.so_far_s()


class Timed:
    """Measures by CUDA events, so that the job need not wait for the device."""

    def __init__(self, found: Any, step_s: Optional[float]) -> None:
        """`step_s`: the duration of a long step, if known."""
        self._found = found
        self._done_s = 0.0
        self._pending: Deque[Any] = deque()
        self.step_s = step_s
        self._begin = self._last = self._event()
        self._begin.record()

    def step(self) -> None:
        """Record the launch of a step."""
        self._last = self._event()
        self._last.record()
        self._pending.append(self._last)

    def so_far_s(self) -> float:
        """Time of the steps launched so far; unfinished ones count as long ones."""
        while self._pending and self._pending[0].query():
            before_s = self._done_s
            self._done_s = self._begin.elapsed_time(self._pending.popleft()) / 1e3
            self.step_s = max(self._done_s - before_s, _FADING * (self.step_s or 0.0))
        if self._pending and self.step_s is None:
            # The amount launched is unknown: better wait for it.
            return math.inf
        return self._done_s + (self.step_s or 0.0) * len(self._pending)

    def end_s(self) -> float:
        """Wait for the device; returns the time of all steps."""
        if not self._pending:
            self.step()
        self._last.synchronize()
        self.so_far_s()
        return float(self._begin.elapsed_time(self._last)) / 1e3

    def _event(self) -> Any:
        # Blocking: a wait that spins would spend the job's CPU quota.
        return self._found.Event(enable_timing=True, blocking=True)

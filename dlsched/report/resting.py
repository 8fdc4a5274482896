"""Sleep that a signal ends, so that a job can react to a request to stop or to save itself.

Python resumes an interrupted sleep, so this uses the signals' wake-up descriptor, if it is free.
Signal handlers stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Optional, Tuple

_ASKING = bytes(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
)
"""Other signals (a child's end, a timer) need no reaction."""


class Rest:
    """A context for sleeps."""

    def __init__(self) -> None:
        self._pipe: Optional[Tuple[int, int]] = None

    def __enter__(self) -> Rest:
        with contextlib.suppress(Exception):
            self._pipe = pipe = os.pipe()
            os.set_blocking(pipe[1], False)
            select.select(pipe[:1], (), (), 0.0)
            before = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
            if before == -1:
                return self
            # An event loop uses the descriptor: leave it.
            signal.set_wakeup_fd(before)
        # Or there are too many descriptors for select(), or this is not the main thread, which is
        # the one that signals interrupt.
        self._close()
        return self

    def sleep(self, seconds: float) -> bool:
        """Sleep at most that long; returns whether a signal came that may need a reaction."""
        if self._pipe is None:
            time.sleep(seconds)
            return False
        until_s = time.monotonic() + seconds
        reading = self._pipe[:1]
        while select.select(reading, (), (), max(0.0, until_s - time.monotonic()))[0]:
            if any(number in _ASKING for number in os.read(reading[0], 64)):
                return True
        return False

    def __exit__(self, *_: object) -> None:
        if self._pipe is not None:
            with contextlib.suppress(Exception):
                signal.set_wakeup_fd(-1)
        self._close()

    def _close(self) -> None:
        pipe, self._pipe = self._pipe, None
        for descriptor in pipe or ():
            with contextlib.suppress(OSError):
                os.close(descriptor)

"""Sleep that a signal ends: a job that is asked to stop or to save itself must not sleep on.

Python goes on with an interrupted sleep. Owns the way around that, where it is free: the wake-up
descriptor of signals, for the time of the sleep. It must not change how signals are handled.
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
"""Others (a child's end, a timer) ask a job for nothing."""


class Rest:
    """A time of sleeps, as a context."""

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
            # An event loop waits for signals there: they are its own.
            signal.set_wakeup_fd(before)
        # Or more descriptors than select() knows, or not the main thread: that one is interrupted
        # by signals, and it is not asleep.
        self._close()
        return self

    def sleep(self, seconds: float) -> bool:
        """Sleep so long at the most; whether a signal came that a job may have to act on."""
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

"""Turns on a GPU: jobs that share one compute one after the other.

A step that another job's steps interrupt takes longer, and a process cannot measure how much of
that was its own. With turns a step's length is its own device time, and while one job rests another
one has the device.

Turns are locks on files beside the allotment, one for each shared GPU: a process that dies releases
its lock. Jobs do not trust each other: a turn that is kept for too long is ignored.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import Callable, Iterable, List, Optional

PATIENCE_S = 10.0
"""The longest wait for a turn; after it steps overlap, as they would without turns. A process that
has kept a turn this long (a long step, or other work) gives it back."""

_SHORTEST_S, _LONGEST_S = 0.0002, 0.005
_POLL_RATIO = 0.02
"""Polling interval, relative to the time waited so far: the device may idle for that long."""


def turn_file(gpu: str) -> str:
    """The name of a GPU's file, beside the allotment."""
    return "turn-" + "".join(each if each.isalnum() or each in "-_" else "_" for each in gpu)


class Turns:
    """The turns that this process holds."""

    def __init__(self, clock: Callable[[], float], watched: bool) -> None:
        """`watched`: a thread gives back what is kept for too long."""
        self._clock = clock
        self._held: List[int] = []
        self._taken_s: Optional[float] = None
        self._in_vain = False
        self._patience_s = PATIENCE_S
        self._grown_s = clock()
        self._unwatched = watched

    def take(
        self, paths: Iterable[str], pause: Callable[[float], bool], others: float = 1.0
    ) -> None:
        """Wait for the turn on all of these; proceed without where that takes too long.

        `pause` sleeps that many seconds, and returns True when the wait must end. `others` is the
        other jobs' fraction of the time, which bounds the total wait. All jobs take turns in the
        order of the names, which excludes deadlocks.
        """
        self.give()
        began_s = self._clock()
        grown_s = self._patience_s + others * (began_s - self._grown_s)
        self._patience_s, self._grown_s = min(PATIENCE_S, grown_s), began_s
        until_s = began_s + (0.0 if self._in_vain else self._patience_s)
        self._in_vain = False
        for path in sorted(paths):
            with contextlib.suppress(OSError):
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                self._held.append(os.open(path, flags))
                self._lock(self._held[-1], until_s, pause)
        self._taken_s = self._clock()
        self._patience_s -= self._taken_s - began_s
        if self._unwatched and self._held:
            self._unwatched = False
            threading.Thread(target=self._watch, name="dlsched-pace", daemon=True).start()

    def give(self) -> None:
        """Give back all turns."""
        self._taken_s = None
        while self._held:
            descriptor = self._held.pop()
            # A job that closed all its descriptors has already given it back.
            with contextlib.suppress(OSError):
                # Unlock explicitly, since forked children have the descriptor, too.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: close, but leave the parent its turn."""
        while self._held:
            with contextlib.suppress(OSError):
                os.close(self._held.pop())

    def expire(self) -> None:
        """Give back turns that have been kept for too long."""
        taken_s = self._taken_s
        if taken_s is not None and self._clock() - taken_s > PATIENCE_S:
            self.give()

    def _watch(self) -> None:
        while True:
            time.sleep(PATIENCE_S / 4)
            # Another thread may give back concurrently.
            with contextlib.suppress(IndexError):
                self.expire()

    def _lock(self, descriptor: int, until_s: float, pause: Callable[[float], bool]) -> None:
        began_s = self._clock()
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                now_s = self._clock()
                again_s = min(_LONGEST_S, max(_SHORTEST_S, _POLL_RATIO * (now_s - began_s)))
                self._in_vain |= now_s >= until_s
                if self._in_vain or pause(again_s):
                    return
            else:
                return

"""Turns on a GPU: jobs that share one compute one after the other, not into each other's time.

A step that another job's steps interrupt takes longer, and nothing in a process tells how much of
that was its own. Taking turns makes a step's length its own device time, and while one job rests
another one has the device.

Owns the locks on the files that the agent lays beside the allotment, one for each shared GPU: a
process that dies gives its turn back, whatever kills it. It must not trust the others: who keeps
a turn for too long is not waited for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import Callable, Iterable, List, Optional

PATIENCE_S = 10.0
"""Nobody waits longer for a turn: then steps overlap, as they would without turns. Who has kept
one for so long (a long step, or the job does something else) gives it back for the others."""

_SHORTEST_S, _LONGEST_S = 0.0002, 0.005
_POLL_RATIO = 0.02
"""Part of the time waited so far after which to look again: that much of the device may idle."""


def turn_file(gpu: str) -> str:
    """The name of the file that stands for a GPU, beside the allotment."""
    return "turn-" + "".join(each if each.isalnum() or each in "-_" else "_" for each in gpu)


class Turns:
    """The turns that this process holds."""

    def __init__(self, clock: Callable[[], float], watched: bool) -> None:
        """`watched`: by a thread, which gives back what is kept for too long."""
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
        """Wait for the turn on all of these; go without where that takes too long.

        `pause` sleeps so many seconds, and answers True when the wait is to end. `others` is the
        part of the time that is the others': no more of it is waited for in the long run, however
        often they give their turn back. Everybody takes them in the order of their names, so no
        two jobs wait for each other.
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
        """Give back what is held."""
        self._taken_s = None
        while self._held:
            descriptor = self._held.pop()
            # A job that closed all of its descriptors gave it back by that.
            with contextlib.suppress(OSError):
                # By name, not by closing alone: forked children have the descriptor too.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: the parent's turn goes on."""
        while self._held:
            with contextlib.suppress(OSError):
                os.close(self._held.pop())

    def expire(self) -> None:
        """Give back what has been kept for so long that nobody waits for it any more."""
        taken_s = self._taken_s
        if taken_s is not None and self._clock() - taken_s > PATIENCE_S:
            self.give()

    def _watch(self) -> None:
        while True:
            time.sleep(PATIENCE_S / 4)
            # Of two threads that give back at once one finds nothing left.
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

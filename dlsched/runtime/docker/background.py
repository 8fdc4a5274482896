"""Engine calls off the loop's thread, and the loop's patience with an engine that hangs.

Owns how such calls are begun and how long the loop may wait for them. It must not know what they
do. Threads are daemons: a call that never returns must not keep the agent from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from dlsched.model.errors import EngineUnavailable

T = TypeVar("T")


def begin(
    call: Callable[[], T],
    name: str,
    gate: AbstractContextManager[object] | None = None,
) -> Future[T]:
    """Run `call` in a thread of its own, as `begin_all` does."""
    return begin_all([call], name, 1, gate)[0]


def begin_all(
    calls: Sequence[Callable[[], T]],
    name: str,
    width: int,
    gate: AbstractContextManager[object] | None = None,
) -> list[Future[T]]:
    """Run them in their order, `width` at a time, fewer where no more threads can be started; one
    that has not begun, or waits at the gate, can be cancelled. Without any thread the results are
    EngineUnavailable."""
    overs: list[Future[T]] = [Future() for _ in calls]
    pending = iter(list(zip(overs, calls, strict=True)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                future, call = next(pending, (None, None))
            if future is None or call is None:
                return
            with gate or nullcontext():
                run(future, call)

    for started in range(min(width, len(calls))):
        if (error := _start(work, name)) is not None:
            for future in overs if started == 0 else ():
                future.set_exception(error)
            break
    return overs


def _start(work: Callable[[], None], name: str) -> EngineUnavailable | None:
    """Start a thread; returns why it cannot be started."""
    try:
        threading.Thread(target=work, name=f"dlsched-{name}", daemon=True).start()
    except RuntimeError:
        return EngineUnavailable("no thread can be started: the limit of processes is reached")
    return None


def run(future: Future[T], call: Callable[[], T]) -> None:
    """Make the call, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked
        future.set_exception(error)
    else:
        future.set_result(result)


class Patience:
    """How long the loop still waits for the engine: one long wait, then none for a second.

    So an engine that hangs costs a cycle one wait, however many calls the cycle has to make.
    """

    def __init__(
        self, wait_s: float, pause_s: float = 1.0, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.now_s = now_s
        self._wait_s = wait_s
        self._pause_s = pause_s
        self._until_s = 0.0

    @property
    def lost(self) -> bool:
        """Whether a call ran into the wait less than a second ago."""
        return self.now_s() < self._until_s

    def wait(self, future: Future[T], since_s: float | None = None) -> bool:
        """Wait until it is done, at most the rest of the time since `since_s`; whether it is."""
        start_s = self.now_s() if since_s is None else since_s
        if self.lost:
            return future.done()
        left_s = max(0.0, start_s + self._wait_s - self.now_s())
        if not futures.wait([future], left_s).done:
            self._until_s = self.now_s() + self._pause_s
            return False
        return True

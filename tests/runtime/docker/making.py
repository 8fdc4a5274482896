"""An executor without threads, and a loop's patience without a clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

from dlsched.runtime.docker.executor import WIDTHS, Executor
from dlsched.runtime.machine.calls import Call, Ended


class Making(Executor):
    """Makes each call where it is begun; while it is held, when that is over."""

    held = False
    """Whether the engine answers nothing."""

    def begin(self, call: Call) -> None:
        self._open[call] = Future()
        self._waiting[call.lane].append(call)
        if not self.held:
            self.go_on()

    def cancel(self, call: Call) -> bool:
        under_way = [*self._waiting[call.lane]][: int(WIDTHS[call.lane])]
        return call not in under_way and super().cancel(call)

    def go_on(self) -> None:
        """Make all that waits."""
        self.held = False
        for waiting in self._waiting.values():
            while waiting:
                self._run(waiting.popleft())


class Waiting:
    """It waits for nothing, and is lost once something was not over."""

    def __init__(self) -> None:
        self.lost = False

    def wait(self, over: Future[Ended], _since_s: float | None = None) -> bool:
        self.lost = self.lost or not over.done()
        return over.done()


def making(
    engine: Any,
    writer: Any,
    wanted: list[str | None],
    now_s: Callable[[], float],
    acts: Any = None,
) -> Making:
    """One on an engine that is as patient as it is hurried."""
    none = nullcontext()
    return Making(engine, engine, writer, none, wanted.append, lambda _: None, acts, now_s)

"""An instance on any engine, an executor without threads, and a loop's patience without a clock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from dlsched.runtime.docker.engine import EngineFacts
from dlsched.runtime.docker.engine_calls import EngineCalls
from dlsched.runtime.docker.executor import CONCURRENT_UPDATES, Executor
from dlsched.runtime.docker.instance import DockerOptions, Instance
from dlsched.runtime.machine.calls import Call, Ended, GiveBack, Instruction, SetLimits
from dlsched.runtime.originals import Originals
from dlsched.simulation.clock import VirtualClock
from tests.doubles import NONE_ADOPTED

NOWHERE = Path("/nonexistent")


class Making(Executor):
    """Makes each call where it is begun; while it is held, when that is over."""

    held = False
    """Whether the engine answers nothing."""

    def do(self, one: Instruction) -> None:
        if not isinstance(one, Call):
            super().do(one)
        elif isinstance(one, SetLimits | GiveBack):
            self._updates.append(one)
        else:
            self._begin(one)

    def update(self) -> None:
        calls, self._updates = self._updates, []
        for number, call in enumerate(calls):
            self._begin(call)
            if self.held and number < CONCURRENT_UPDATES:
                self._open[call].set_running_or_notify_cancel()

    def go_on(self) -> None:
        """Make all that waits."""
        self.held = False
        for call, over in list(self._open.items()):
            if not over.done():
                over.set_result(self._run(call))

    def _begin(self, call: Call) -> None:
        self._watch(call, Future())
        if not self.held:
            self._open[call].set_result(self._run(call))


class Waiting:
    """It waits for nothing, and is lost once something was not over."""

    def __init__(self) -> None:
        self.lost = False

    def wait(self, over: Future[Ended], _since_s: float | None = None) -> bool:
        self.lost = self.lost or not over.done()
        return over.done()


def making(
    calls: Any,
    wanted: list[str | None],
    now_s: Callable[[], float],
    wake: Callable[[str], None] = lambda _: None,
) -> Making:
    return Making(calls, wanted.append, wake, now_s)


def instance_of(
    engine: Any, state_dir: Path | None = None, *, name: str = "i", **more: Any
) -> Instance:
    """One on an engine that is as patient as it is hurried."""
    state_dir = state_dir or NOWHERE
    options = DockerOptions(name, state_dir, **more.pop("options", {}))
    parts = {
        "clock": VirtualClock(0.0),
        "originals": Originals(state_dir, read_only=True),
        "adoptions": NONE_ADOPTED,
        **more,
    }
    return Instance(options, engine, engine, EngineFacts(engine), **parts)


def calls_of(engine: Any, writer: Any, images: Any = None, creation: Any = None) -> EngineCalls:
    """Those of an engine, but for moves."""
    unused: Any = None
    return EngineCalls(instance_of(engine), writer, creation, images, unused)

"""Makes the machine's calls, each in a thread of its own, and keeps their ends for the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from dlsched.model.errors import DlschedError
from dlsched.model.facts import ContainerState
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.create.containers import NO_RESTART, restart_update
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine.calls import AskToEnd, Call, Kill, RemoveContainer, SetRestart
from dlsched.runtime.machine.container import Ended


class Executor:
    """The calls of one engine. All but `make` is for the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        unhurried: Engine,
        writer: LimitWriter,
        gate: threading.Semaphore,
        want: Callable[[str | None], None],
        now_s: Callable[[], float],
    ) -> None:
        """`unhurried` waits longer for its answers; `gate` bounds calls that fork a process; `want`
        is called, from a thread, with a container to inspect again."""
        self._engine = engine
        self._unhurried = unhurried
        self._writer = writer
        self._gate = gate
        self._want = want
        self._now_s = now_s
        self._ended: SimpleQueue[Ended] = SimpleQueue()

    def begin(self, call: Call) -> None:
        """Begin to make it; waits for nothing."""
        name = f"{type(call).__name__}-{call.container[:12]}"
        future = begin(partial(self.make, call), name, self._gate if call.gated else None)
        future.add_done_callback(partial(self._over, call))

    def ended(self) -> Iterator[Ended]:
        """The calls that have ended since."""
        with suppress(Empty):
            while True:
                yield self._ended.get_nowait()

    def make(self, call: Call) -> None:
        """Make it; blocks on the engine. Raises what that raises."""
        match call:
            case AskToEnd():
                self._ask_to_end(call)
            case Kill():
                self._signal(call.container, "SIGKILL")
            case RemoveContainer():
                self._unhurried.remove(call.container)
            case SetRestart():
                self._engine.update(call.container, restart_update(call.restart))

    def _over(self, call: Call, done: Future[None]) -> None:
        self._ended.put(Ended(call, self._now_s(), done.exception()))
        self._want(call.container)

    def _ask_to_end(self, call: AskToEnd) -> None:
        # An update could take a job's GPUs away while it saves itself. The engine does not restart
        # a container that ended by its own signal, or was killed.
        if not call.described.risks_gpus:
            with suppress(EngineRefused):
                self._unhurried.update(call.container, NO_RESTART)
        with suppress(DlschedError):  # without it, the end only takes longer
            self._writer.lift(call.container, call.action.lift)
        if call.described.state is ContainerState.PAUSED:
            with suppress(EngineRefused):
                self._unhurried.unpause(call.container)
        self._signal(call.container, call.action.stop.signal)

    def _signal(self, container: str, signal: str) -> None:
        # Refused: it has just ended, or the signal is invalid; the listing or SIGKILL follow.
        with suppress(EngineRefused):
            self._unhurried.kill(container, signal)

"""Makes the machine's calls in threads, and keeps their ends for the loop."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any

from dlsched.control.ports import Wake
from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.model.facts import ContainerState
from dlsched.runtime.docker.background import NO_THREAD
from dlsched.runtime.docker.carrying import remove_archive
from dlsched.runtime.docker.create.containers import NO_RESTART, restart_update
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine.calls import (
    Abandon,
    Act,
    AskToEnd,
    Call,
    DropArchive,
    Ended,
    Examine,
    GiveBack,
    Instruction,
    Kill,
    Lane,
    Release,
    Remember,
    RemoveContainer,
    Say,
    SetLimits,
    SetRestart,
    Tidy,
)
from dlsched.runtime.machine.outcomes import Own

_log = logging.getLogger(__name__)

WIDTHS = {Lane.FREE: math.inf, Lane.FORKS: 4, Lane.UPDATES: 4}
"""Calls of one lane that are made at a time."""


class Executor:
    """The calls of one engine. All but `make` is for the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        unhurried: Engine,
        writer: LimitWriter,
        gate: AbstractContextManager[object],
        want: Callable[[str | None], None],
        wake: Wake,
        acts: Any,
        now_s: Callable[[], float],
    ) -> None:
        """`unhurried` waits longer for its answers; `gate` bounds calls that fork a process; `want`
        is called, from a thread, with a container to inspect again; `acts` has the acts of moves,
        as `Relocation`."""
        self._engine = engine
        self._unhurried = unhurried
        self._writer = writer
        self._gate = gate
        self._want = want
        self._wake = wake
        self._acts = acts
        self._now_s = now_s
        self._lock = threading.Lock()
        self._waiting: defaultdict[Lane, deque[Call]] = defaultdict(deque)
        self._threads: defaultdict[Lane, int] = defaultdict(int)
        self._open: dict[Call, Future[Ended]] = {}
        """Calls whose end the loop has not taken yet."""
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._abandoned: set[Call] = set()

    def do(self, one: Instruction) -> None:
        """Begin a call, or do what else is asked for; waits for nothing."""
        match one:
            case Call():
                self.begin(one)
            case Abandon():
                self._abandoned.add(one.call)
            case DropArchive():
                with suppress(OSError):
                    remove_archive(one.archive)
            case Say():
                _log.log(logging.WARNING if one.warns else logging.INFO, "%s", one.text)

    def begin(self, call: Call) -> None:
        """Have it made; waits for nothing."""
        self._open[call] = Future()
        with self._lock:
            self._waiting[call.lane].append(call)
            if self._threads[call.lane] >= WIDTHS[call.lane]:
                return
            self._threads[call.lane] += 1
        self._start(call.lane)

    def over(self, call: Call) -> Future[Ended]:
        """Its end, once it has ended; to be asked for before that is taken."""
        return self._open[call]

    def cancel(self, call: Call) -> bool:
        """Have it end without being made, if it was not begun; returns whether it was not."""
        with self._lock, suppress(ValueError):
            self._waiting[call.lane].remove(call)
            self._ended.put(Ended(call, self._now_s(), CancelledError()))
            return True
        return False

    def ended(self) -> Iterator[Ended]:
        """The calls that have ended since."""
        with suppress(Empty):
            while True:
                one = self._ended.get_nowait()
                del self._open[one.call]
                self._abandoned.discard(one.call)
                yield one

    def make(self, call: Call) -> object:
        """Make it; blocks on the engine. Raises what that raises."""
        match call:
            case Act(act="pack"):
                return self._acts.pack(*call.args, lambda: call in self._abandoned)
            case Act():
                return getattr(self._acts, call.act)(*call.args)
            case AskToEnd():
                self._ask_to_end(call)
            case Kill():
                self._signal(call.container, "SIGKILL")
            case RemoveContainer():
                self._unhurried.remove(call.container)
            case SetRestart():
                self._engine.update(call.container, restart_update(call.restart))
            case SetLimits():
                self._set_limits(call)
            case Tidy() if self._writer.forget_if_gone(call.container) or call.original.given_back:
                return None
            case Release() | GiveBack():
                return self._writer.give_back(call.original)
            case Remember():
                self._writer.remember(call.container, call.own)
            case Examine():
                return self._writer.refusal(call.container)
        return None

    def _start(self, lane: Lane) -> None:
        try:
            name = f"dlsched-{lane}"
            threading.Thread(target=self._work, args=(lane,), name=name, daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._threads[lane] -= 1
                alone = self._threads[lane] == 0
                left = [*self._waiting[lane]] if alone else []
                if alone:
                    self._waiting[lane].clear()
            for call in left:
                self._end(Ended(call, self._now_s(), EngineUnavailable(NO_THREAD)))

    def _work(self, lane: Lane) -> None:
        while True:
            with self._lock:
                if not self._waiting[lane]:
                    self._threads[lane] -= 1
                    return
                call = self._waiting[lane].popleft()
            with self._gate if lane is Lane.FORKS else nullcontext():
                self._run(call)

    def _run(self, call: Call) -> None:
        began_s, error, result = self._now_s(), None, None
        try:
            result = self.make(call)
        except BaseException as raised:  # noqa: BLE001 - the loop handles it
            error = raised
        now_s = self._now_s()
        self._end(Ended(call, now_s, error, result, now_s - began_s))

    def _end(self, ended: Ended) -> None:
        over = self._open[ended.call]
        self._ended.put(ended)
        call = ended.call
        if call.container and (call.inspects or isinstance(ended.error, EngineRefused)):
            self._want(call.container)
        if isinstance(call, Act) and call.label:
            self._wake(call.label)
        over.set_result(ended)

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

    def _set_limits(self, call: SetLimits) -> None:
        action, described = call.action, call.described
        own = Own(action.job, action.ceiling_cores, described.mps_threads_percent)
        self._writer.set(
            call.container,
            action.limits,
            action.cpu_shares,
            burst_cores=action.burst_cores,
            idle=action.cpu_idle,
            own=None if described.adopted is not None else own,
            described=described,
        )

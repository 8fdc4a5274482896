"""Makes the machine's calls in threads, and keeps their ends for the loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from dlsched.control.ports import Wake
from dlsched.model.errors import DlschedError
from dlsched.runtime.docker.background import begin, begin_all
from dlsched.runtime.docker.carrying import remove_archive
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.engine_calls import CONCURRENT_FORKS, EngineCalls
from dlsched.runtime.machine.calls import (
    Abandon,
    Act,
    Call,
    DropArchive,
    Ended,
    Examine,
    GiveBack,
    Instruction,
    Pulls,
    ReleaseContainer,
    Say,
    SetLimits,
    SetMemory,
    StartJob,
)

_log = logging.getLogger(__name__)

CONCURRENT_UPDATES = CONCURRENT_FORKS


class Executor:
    """The calls of one engine. For the loop's thread."""

    def __init__(
        self,
        calls: EngineCalls,
        want: Callable[[str | None], None],
        wake: Wake,
        now_s: Callable[[], float],
    ) -> None:
        """`want` is called, from a thread, with a container to inspect again."""
        self._calls = calls
        self._returns = threading.Semaphore(CONCURRENT_FORKS)
        """Giving back does not wait for slow starts."""
        self._want = want
        self._wake = wake
        self._now_s = now_s
        self._updates: list[Call] = []
        self._open: dict[Call, Future[Ended]] = {}
        """Calls whose end the loop has not taken yet."""
        self._ended: SimpleQueue[Ended | Pulls] = SimpleQueue()
        self._abandoned: set[Call] = set()

    def do(self, one: Instruction) -> None:
        """Begin a call, or do what else is asked for; waits for nothing. In a dry run nothing is
        called but what only reads."""
        match one:
            case Call() | DropArchive() if self._withholds(one):
                _log.error("a dry run makes no call %s", type(one).__name__)
            case SetLimits() | SetMemory() | GiveBack():  # see `update`
                self._updates.append(one)
            case Call():
                gate = None
                if one.forks:
                    gate = self._returns if isinstance(one, ReleaseContainer) else self._calls.forks
                self._watch(one, begin(partial(self._run, one), type(one).__name__, gate))
            case Abandon():
                self._abandoned.add(one.call)
            case DropArchive():
                with suppress(OSError):
                    remove_archive(one.archive)
            case Say():
                _log.log(logging.WARNING if one.warns else logging.INFO, "%s", one.text)

    def _withholds(self, one: Call | DropArchive) -> bool:
        return self._calls.instance.options.read_only and not isinstance(one, Examine)

    def update(self) -> None:
        """Begin the updates that were asked for since, some at a time."""
        calls, self._updates = self._updates, []
        runs = [partial(self._run, call) for call in calls]
        for call, over in zip(calls, begin_all(runs, "update", CONCURRENT_UPDATES), strict=True):
            self._watch(call, over)

    def over(self, call: Call) -> Future[Ended]:
        """Done when the call has ended, and to be asked for before that is taken. Cancelling it
        works before it was begun."""
        return self._open[call]

    def wait(self, call: Call, within_s: float = 0.0) -> Ended:
        """Its end. Raises TimeoutError."""
        error = self._open[call].exception(within_s)
        return self._open[call].result() if error is None else self._unmade(call, error)

    def ended(self) -> Iterator[Ended | Pulls]:
        """The calls that have ended since, and what became known of others."""
        with suppress(Empty):
            while True:
                one = self._ended.get_nowait()
                if isinstance(one, Ended):
                    self._open.pop(one.call, None)
                    self._abandoned.discard(one.call)
                yield one

    def _watch(self, call: Call, over: Future[Ended]) -> None:
        self._open[call] = over
        over.add_done_callback(partial(self._done, call))

    def _done(self, call: Call, over: Future[Ended]) -> None:
        """Where it was cancelled, or no thread could be started, that is its end."""
        error = CancelledError() if over.cancelled() else over.exception()
        if error is not None:
            self._ended.put(self._unmade(call, error))

    def _unmade(self, call: Call, error: BaseException) -> Ended:
        return Ended(call, self._now_s(), error)

    def _run(self, call: Call) -> Ended:
        began_s, error, result = self._now_s(), None, None
        try:
            result = self._calls.make(call, self._ended.put, lambda: call in self._abandoned)
        except BaseException as raised:  # noqa: BLE001 - the loop handles it
            error = raised
        if isinstance(error, DlschedError | OSError | ValueError):
            # It is kept; its frames, and those of what caused it, would keep the engine's answers.
            error.__traceback__ = error.__cause__ = error.__context__ = None
        now_s = self._now_s()
        ended = Ended(call, now_s, error, result, now_s - began_s)
        self._ended.put(ended)
        if call.container and (call.inspects or isinstance(error, EngineRefused)):
            self._want(call.container)
        if isinstance(call, Act) and call.label:
            self._wake(call.label)
        elif isinstance(call, StartJob):
            self._want(None if result is None else str(result))
            self._wake(f"{call.job}: start {'done' if error is None else 'failed'}")
        return ended

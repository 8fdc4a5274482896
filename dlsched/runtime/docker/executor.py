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
from dlsched.model.facts import ContainerState
from dlsched.runtime.docker.background import begin, begin_all
from dlsched.runtime.docker.carrying import remove_archive
from dlsched.runtime.docker.create.containers import NO_RESTART, restart_update
from dlsched.runtime.docker.create.creation import Creation
from dlsched.runtime.docker.create.images import Images
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.docker.moves.relocation import Relocation
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
    Pulls,
    Release,
    Remember,
    RemoveContainer,
    Say,
    SetLimits,
    SetRestart,
    StartJob,
    Tidy,
)
from dlsched.runtime.machine.outcomes import Own

_log = logging.getLogger(__name__)

CONCURRENT_UPDATES = CONCURRENT_FORKS = 4
"""Concurrent updates: each forks a runc, and more would only queue at the engine."""


class Executor:
    """The calls of one engine. All but `make` is for the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        unhurried: Engine,
        writer: LimitWriter,
        want: Callable[[str | None], None],
        wake: Wake,
        acts: Relocation,
        images: Images,
        creation: Creation,
        now_s: Callable[[], float],
    ) -> None:
        """`unhurried` waits longer for its answers; `want` is called, from a thread, with a
        container to inspect again; `acts` are those of moves."""
        self._engine = engine
        self._unhurried = unhurried
        self._writer = writer
        self._gate = threading.Semaphore(CONCURRENT_FORKS)
        self._returns = threading.Semaphore(CONCURRENT_FORKS)
        """Giving back does not wait for slow starts."""
        self._want = want
        self._wake = wake
        self._acts = acts
        self._images = images
        self._creation = creation
        self._now_s = now_s
        self._updates: list[Call] = []
        self._open: dict[Call, Future[Ended]] = {}
        """Calls whose end the loop has not taken yet."""
        self._ended: SimpleQueue[Ended | Pulls] = SimpleQueue()
        self._abandoned: set[Call] = set()

    def do(self, one: Instruction) -> None:
        """Begin a call, or do what else is asked for; waits for nothing."""
        match one:
            case SetLimits() | GiveBack():  # see `update`
                self._updates.append(one)
            case Call():
                gate = None
                if one.forks:
                    gate = self._returns if isinstance(one, Release) else self._gate
                self._watch(one, begin(partial(self._run, one), type(one).__name__, gate))
            case Abandon():
                self._abandoned.add(one.call)
            case DropArchive():
                with suppress(OSError):
                    remove_archive(one.archive)
            case Say():
                _log.log(logging.WARNING if one.warns else logging.INFO, "%s", one.text)

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
                    del self._open[one.call]
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
            result = self.make(call)
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

    def make(self, call: Call) -> object:
        """Make it; blocks on the engine. Raises what that raises."""
        match call:
            case Act():
                stop = [lambda: call in self._abandoned] if call.act == "pack" else []
                return getattr(self._acts, call.act)(*call.args, *stop)
            case StartJob():
                return self._start(call)
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

    def _start(self, call: StartJob) -> str | None:
        pulls = False

        def report(progress: Callable[[], str]) -> None:
            nonlocal pulls
            pulls = True
            self._ended.put(Pulls(call, progress))

        reference = call.action.spec.container.image
        image = self._images.require(reference, call.policy, report)
        if pulls:
            return None
        with self._gate:
            return self._creation.start(call.action, image)

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

"""Everything given back while the agent runs, and left so until it is resumed.

Owns that state, which outlasts the agent as the file `released` in the state directory, and passes
the request from another thread to the loop. It must not give anything back itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue

from dlsched.control.ports import Clock, Wake
from dlsched.model.errors import DlschedError
from dlsched.runtime.docker.limits.outcome import GivenBack
from dlsched.store.atomic import remove, write_whole

FILE = "released"

WITHIN_S = 60.0
"""The loop begins within a cycle, and waits for the engine no longer than its timeout."""


class NotReleased(DlschedError):
    """Nothing was given back, or not all of it in time; the text says why."""


class Release:
    """Whether everything is given back. `ask` and `resume` may be called from any thread."""

    def __init__(self, state_dir: Path, clock: Clock, wake: Wake) -> None:
        """Continue in the state that an earlier agent left."""
        self._file = state_dir / FILE
        self._clock = clock
        self._wake = wake
        self._asked: SimpleQueue[Future[Sequence[GivenBack]]] = SimpleQueue()
        self._undurable: str | None = None
        self._released = self._file.exists()

    @property
    def why(self) -> str | None:
        """Why nothing is changed; None: it may be."""
        if not self._released:
            return None
        text = "released: nothing is changed until SIGHUP or `dlsched release --resume`"
        return text if self._undurable is None else f"{text}, or a restart ({self._undurable})"

    def ask(self) -> Sequence[GivenBack]:
        """Have everything given back, and wait for it. Raises NotReleased."""
        answer: Future[Sequence[GivenBack]] = Future()
        self._asked.put(answer)
        self._wake("release")
        try:
            return answer.result(WITHIN_S)
        except TimeoutError:
            raise NotReleased(f"not everything was given back within {WITHIN_S:g} s") from None

    def resume(self) -> None:
        """Let the agent work again. Raises OSError when that cannot be made durable."""
        remove(self._file)
        self._released = False
        self._wake("resume")

    def answer(self, give_back: Callable[[], Sequence[GivenBack]]) -> None:
        """Answer every request, in the loop; `give_back` does not raise."""
        while (asked := self._next()) is not None:
            self._released = True
            try:
                write_whole(self._file, f"{self._clock.wall_time()}\n")
                self._undurable = None
            except OSError as error:
                self._undurable = f"it cannot be written down: {error.strerror}"
            asked.set_result(give_back())

    def close(self) -> None:
        """Answer requests that still wait: the agent ends."""
        while (asked := self._next()) is not None:
            asked.set_exception(NotReleased("the daemon is ending, and gives everything back"))

    def _next(self) -> Future[Sequence[GivenBack]] | None:
        try:
            return self._asked.get_nowait()
        except Empty:
            return None

"""Release: everything is given back while the agent runs, and stays so until a resume.

The state survives restarts as the file `released` in the state directory. Requests pass from other
threads to the loop, whose callback gives limits back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

from dlsched.control.ports import Clock, Wake
from dlsched.model.errors import DlschedError
from dlsched.runtime.machine.outcomes import GivenBack
from dlsched.store.atomic import remove, write_whole

FILE = "released"

WITHIN_S = 60.0
"""The loop begins within a cycle, and waits for the engine at most its timeout."""


class NotReleased(DlschedError):
    """Nothing was given back, or not all in time; the text says why."""


class Release:
    """The release state. `ask` and `resume` may be called from any thread."""

    def __init__(self, state_dir: Path, clock: Clock, wake: Wake) -> None:
        self._file = state_dir / FILE
        self._clock = clock
        self._wake = wake
        self._asked: SimpleQueue[Future[Sequence[GivenBack]]] = SimpleQueue()
        self._undurable: str | None = None
        self._released = self._file.exists()

    @property
    def why(self) -> str | None:
        """Why nothing may be changed; None: changes are allowed."""
        if not self._released:
            return None
        text = (
            "all limits were given back by `dlsched release`: nothing is changed until `dlsched "
            "release --resume` or SIGHUP"
        )
        return text if self._undurable is None else f"{text}, or a restart, as {self._undurable}"

    def ask(self) -> Sequence[GivenBack]:
        """Request that everything is given back, and wait for it. Raises NotReleased."""
        answer: Future[Sequence[GivenBack]] = Future()
        self._asked.put(answer)
        self._wake("release")
        try:
            return answer.result(WITHIN_S)
        except TimeoutError:
            raise NotReleased(f"not all limits were given back within {WITHIN_S:g} s") from None

    def resume(self) -> None:
        """End the release. Raises OSError if that cannot be made durable."""
        remove(self._file)
        self._released = False
        self._wake("resume")

    def answer(self, give_back: Callable[[], Sequence[GivenBack]]) -> None:
        """Answer all requests, in the loop. `give_back` does not raise."""
        while not self._asked.empty():
            asked = self._asked.get()
            self._released = True
            try:
                write_whole(self._file, f"{self._clock.wall_time()}\n")
                self._undurable = None
            except OSError as error:
                self._undurable = f"the release cannot be recorded: {error.strerror}"
            asked.set_result(give_back())

    def close(self) -> None:
        """Refuse pending requests, as the agent ends."""
        while not self._asked.empty():
            refusal = NotReleased(
                "not asked for again: the daemon is ending, and gives all limits back"
            )
            self._asked.get().set_exception(refusal)

"""The port to whatever runs containers: facts in, actions out.

Owns the Runtime protocol alone. It must not know Docker, cgroups or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from dlsched.model import Action, Observation, Outcome, Resize


class Runtime(Protocol):
    """What the controller needs of an engine.

    All methods return within about a second whatever the engine does: what can outlast a cycle
    (pull, create, stop with grace, a hung engine) is *begun* and shows in later observations.
    """

    def observe(self, now_s: float) -> Observation:
        """All facts at `now_s`; a container that cannot be read has None, and never raises."""
        ...

    def apply(self, action: Action, now_s: float) -> Outcome:
        """Carry out one action; idempotent; a failure is an outcome, not an exception."""
        ...

    def apply_all(self, actions: Sequence[Resize], now_s: float) -> tuple[Outcome, ...]:
        """Carry out changes of as many jobs, in any order or at once: none counts on another."""
        ...


class LogSource(Protocol):
    """Where the API reads a job's log."""

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output, oldest first; raises EngineUnavailable or KeyError."""
        ...


Wake = Callable[[str], None]
"""What a watching thread calls, with a word on what it saw; it must not do more than that."""

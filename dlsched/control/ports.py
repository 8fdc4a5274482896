"""What the cycle needs of the world: time, an engine, job files, and the records of ended jobs.

Owns these protocols alone. It must not know Docker, cgroups or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dlsched.control.ledger.desired import Wish
from dlsched.model.actions import Action, Outcome, Resize
from dlsched.model.cycle import RejectedFile
from dlsched.model.facts import Observation
from dlsched.model.state import Ended


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


class Clock(Protocol):
    """Monotonic seconds, a wall clock for show, and a sleep that a wake ends."""

    def now_s(self) -> float:
        """Monotonic seconds; never goes back, also not over a restart of the agent."""
        ...

    def wall_time(self) -> str:
        """RFC 3339 UTC, for show only."""
        ...

    def sleep_until(self, until_s: float) -> bool:
        """Wait until that time or a wake; True when it was a wake."""
        ...

    def wake(self) -> None:
        """End the present or the next sleep at once. For any thread, and for signal handlers."""
        ...

    def cpu_s(self) -> float:
        """CPU seconds of this thread, to print what the loop costs."""
        ...


@dataclass(frozen=True, slots=True)
class Inbound:
    """What the job files say now."""

    wish: Wish = field(default_factory=Wish)
    sources: Mapping[str, str] = field(default_factory=dict)
    rejected: tuple[RejectedFile, ...] = ()
    troubles: tuple[str, ...] = ()
    """What is wrong with where wishes come from, a line each."""


class WishSource(Protocol):
    """Where wishes come from: the watch folder, or a trace."""

    def scan(self, now_s: float) -> Inbound:
        """The wish in force now."""
        ...


class EndedRecords(Protocol):
    """The durable records of ended jobs."""

    def all(self) -> Mapping[str, Ended]:
        """Every record, by job."""
        ...

    def record(self, ended: Ended) -> None:
        """Keep it, durably. On OSError it holds, and `write_again` makes it durable."""
        ...

    def write_again(self) -> None:
        """Make durable what was not. Raises OSError."""
        ...

    def lift(self, name: str) -> None:
        """Forget it."""
        ...

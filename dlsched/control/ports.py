"""The ports of the cycle: time, an engine, job files and durable records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.state import State
from dlsched.model.actions import Action, Outcome, Resize
from dlsched.model.alarms import Alarm
from dlsched.model.cycle import CycleReport, HookRun
from dlsched.model.facts import Observation
from dlsched.model.state import Ended


class Runtime(Protocol):
    """What the controller needs of an engine.

    Every method returns within about a second, even when the engine hangs. Slow operations (pull,
    create, stop with grace) are *begun*; later observations show how they go on.
    """

    @property
    def held(self) -> str | None:
        """Why nothing may be changed now; None: changes are made."""
        ...

    def observe(self, now_s: float) -> Observation:
        """All facts at `now_s`; reads only, and never raises: what cannot be read is None."""
        ...

    def advance(self, now_s: float) -> None:
        """Go on with operations that were begun earlier, from the facts observed last."""
        ...

    def apply(self, action: Action, now_s: float) -> Outcome:
        """Carry out one action; idempotent; a failure is an outcome, not an exception."""
        ...

    def apply_all(self, actions: Sequence[Resize], now_s: float) -> tuple[Outcome, ...]:
        """Change the limits of several jobs, in any order or together: none depends on another."""
        ...


class LogSource(Protocol):
    """Where the API reads a job's log."""

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output, oldest first; raises EngineUnavailable or KeyError."""
        ...


Wake = Callable[[str], None]
"""What a watching thread calls with the reason; it must do nothing else."""


class Clock(Protocol):
    """Monotonic seconds, wall time for display, and a sleep that can be woken."""

    def now_s(self) -> float:
        """Monotonic seconds; they never go back, not even when the agent restarts."""
        ...

    def wall_time(self) -> str:
        """RFC 3339 UTC, for display only."""
        ...

    def sleep_until(self, until_s: float) -> bool:
        """Wait until that time or a wake; True when it was a wake."""
        ...

    def wake(self) -> None:
        """End the current or the next sleep immediately; safe in threads and signal handlers."""
        ...

    def cpu_s(self) -> float:
        """CPU seconds of this thread, to report what the loop costs."""
        ...


class DesiredSource(Protocol):
    """Where the desired state comes from: the watch folder, or a trace."""

    def scan(self, now_s: float) -> Desired:
        """What the job files ask for now."""
        ...


class CycleRecords(Protocol):
    """The durable records of ended and delivered jobs."""

    def ended(self) -> Mapping[str, Ended]:
        """The record of every ended job, by name."""
        ...

    def keep(self, state: State) -> tuple[HookRun, ...]:
        """Make durable what ended, what was lifted and what was delivered; never raises.

        Returns the runs of the operator's command that ended since the last call.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside the cycle that it reads from or acts on."""

    runtime: Runtime
    clock: Clock
    inbox: DesiredSource
    records: CycleRecords
    publish: Callable[[CycleReport], None] = lambda _: None
    """Receives every report."""
    alarms: Callable[[], Sequence[Alarm]] = tuple
    """What is wrong outside the cycle."""

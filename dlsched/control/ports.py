"""The ports of the cycle: clock, engine, job files and durable records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.updated import State
from dlsched.model.actions import Action, Memory, Outcome, Resize
from dlsched.model.alarms import Alarm
from dlsched.model.cycle import CycleReport, HookRun
from dlsched.model.facts import Observation
from dlsched.model.state import Ended


class Runtime(Protocol):
    """The controller's interface to an engine. Every method returns within about a second, even if
    the engine hangs. Slow operations (pull, create, stop with grace) are *begun*, and later
    observations show their progress."""

    @property
    def held(self) -> str | None:
        """Why no change may be made now; None: changes are allowed."""

    def resume(self, now_s: float) -> None:
        """List the engine's containers, and take up what an earlier agent began with them. The next
        observation shows both."""

    def observe(self, now_s: float) -> Observation:
        """All facts at `now_s`. Reads only and never raises: an unreadable value is None."""

    def advance(self, now_s: float) -> None:
        """Continue operations that have begun, based on the last observation."""

    def apply(self, action: Action, now_s: float) -> Outcome:
        """Execute one action. Idempotent; a failure is an outcome, not an exception."""

    def apply_all(self, actions: Sequence[Resize | Memory], now_s: float) -> tuple[Outcome, ...]:
        """Change the limits of several jobs, which do not depend on each other, in any order."""


Wake = Callable[[str], None]
"""Called by watching threads with the reason. It must only wake the loop."""


class Clock(Protocol):
    """Monotonic seconds, wall time for display, and a sleep that can be interrupted."""

    def now_s(self) -> float:
        """Monotonic seconds, which never go back, not even over a restart of the agent."""

    def wall_time(self) -> str:
        """RFC 3339 UTC, for display only."""

    def sleep_until(self, until_s: float) -> bool:
        """Wait until that time or a wake; True if it was a wake."""

    def wake(self) -> None:
        """End the current or next sleep immediately. Safe in threads and signal handlers."""

    def cpu_s(self) -> float:
        """CPU seconds of this thread, for the loop's cost."""


class DesiredSource(Protocol):
    """Source of the desired state: the watch folder, or a trace."""

    def scan(self, now_s: float) -> Desired:
        """The desired state now."""


class CycleRecords(Protocol):
    """Durable records of ended and delivered jobs."""

    def ended(self) -> Mapping[str, Ended]:
        """All records of ended jobs, by name."""

    def keep(self, state: State) -> tuple[HookRun, ...]:
        """Write records of jobs that ended or delivered, and remove lifted ones; never raises.
        Returns the runs of the operator's command that ended since the last call."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything outside the cycle that it reads or acts on."""

    runtime: Runtime
    clock: Clock
    inbox: DesiredSource
    records: CycleRecords
    publish: Callable[[CycleReport], None] = lambda _: None
    alarms: Callable[[], Sequence[Alarm]] = tuple
    """Alarms from outside the cycle."""
    before_actions: Callable[[State, Sequence[Action]], None] = lambda _state, _actions: None

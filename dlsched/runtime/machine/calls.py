"""What the executor is asked to do with a container: each is a call that blocks on the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from dlsched.model.actions import Memory, Remove, Resize, Start
from dlsched.model.spec import Restart
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import Own
from dlsched.runtime.originals import Original


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of the engine; two equal ones are two calls."""

    container: str
    forks: ClassVar[bool] = False
    """Whether it forks a process on the host: more than some at a time would only queue there."""
    updates: ClassVar[bool] = False
    """Whether nothing else may be changed meanwhile."""
    inspects: ClassVar[bool] = True
    """Whether the container is to be inspected after it."""


@dataclass(frozen=True, slots=True, eq=False)
class AskToEnd(Call):
    """Send it its signal: without a restart policy, under the limits that the removal lifts."""

    action: Remove
    described: Inspected
    forks: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class Kill(Call):
    """Send it SIGKILL."""


@dataclass(frozen=True, slots=True, eq=False)
class RemoveContainer(Call):
    """Remove it; it has ended."""

    forks: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class SetRestart(Call):
    """Give it the restart policy of its spec."""

    restart: Restart
    updates: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class SetLimits(Call):
    """Change its limits; its original ones are on the disk before."""

    action: Resize
    described: Inspected
    updates: ClassVar[bool] = True
    inspects: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, eq=False)
class SetMemory(Call):
    """Change its memory limit; the original one is on the disk before."""

    action: Memory
    described: Inspected
    updates: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class GiveBack(Call):
    """Give it back what it had, as the plan wants it; results in a `GivenBack`."""

    described: Inspected
    original: Original
    updates: ClassVar[bool] = True
    inspects: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseContainer(Call):
    """Give it back what it had, as everything is given back; results in a `GivenBack`."""

    original: Original
    forks: ClassVar[bool] = True
    inspects: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, eq=False)
class Tidy(ReleaseContainer):
    """Ask the engine for it: where it is gone, its record is dropped; else its limits are changed
    back to what it had, unless that was done."""

    updates: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class Remember(Call):
    """Record what it goes back to: it is an own one, and its ceiling has changed."""

    own: Own
    updates: ClassVar[bool] = True
    inspects: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, eq=False)
class Examine(Call):
    """Find out why another program's container must not be touched; results in that, or None."""

    described: Inspected
    inspects: ClassVar[bool] = False


ActName = (
    Literal["ask", "end_old", "kill", "replace", "pack", "find", "end", "remove"]
    | Literal["bring_back", "name", "withdraw", "poll", "sweep", "start_again"]
)
"""The acts of moves, as `EngineCalls` calls them."""

FREE: frozenset[ActName] = frozenset({"pack", "withdraw", "poll", "sweep", "start_again"})
"""Those that fork nothing, or may take long."""


@dataclass(frozen=True, slots=True, eq=False)
class Act(Call):
    """One act of a job's move."""

    job: str
    act: ActName
    args: tuple[object, ...] = ()
    label: str = ""
    """Why its end wakes the loop; empty: it does not."""

    @property
    def forks(self) -> bool:  # type: ignore[override]
        return self.act not in FREE


@dataclass(frozen=True, slots=True, eq=False)
class StartJob(Call):
    """Find or pull its image, then create its container and start it; results in its id, or None
    after a pull."""

    action: Start
    policy: Literal["missing", "always", "never"]
    """Whether the image is pulled."""

    @property
    def job(self) -> str:
        return self.action.job


@dataclass(frozen=True, slots=True)
class Pulls:
    """A start has begun to pull its image."""

    call: StartJob
    progress: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Abandon:
    """End that call early, without a result."""

    call: Act


@dataclass(frozen=True, slots=True)
class DropArchive:
    """Remove that file now: later it could be the next attempt's."""

    archive: Path


@dataclass(frozen=True, slots=True)
class Say:
    """Log it."""

    text: str
    warns: bool = False


Instruction = Call | Abandon | DropArchive | Say
"""What is to be done: a call is made in the background, all else immediately."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A call has ended."""

    call: Call
    at_s: float
    error: BaseException | None = None
    """None: it succeeded."""
    result: object = None
    took_s: float = 0.0

"""What the executor is asked to do with a container: each is a call that blocks on the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlsched.model.actions import Remove
from dlsched.model.spec import Restart
from dlsched.runtime.machine.inspected import Inspected


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of the engine; two equal ones are two calls."""

    container: str
    gated: ClassVar[bool] = False
    """Whether few are made at a time: each forks a process on the host."""
    updates: ClassVar[bool] = False
    """Whether nothing else may be changed meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class AskToEnd(Call):
    """Send it its signal: without a restart policy, under the limits that the removal lifts."""

    action: Remove
    described: Inspected
    gated: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class Kill(Call):
    """Send it SIGKILL."""


@dataclass(frozen=True, slots=True, eq=False)
class RemoveContainer(Call):
    """Remove it; it has ended."""

    gated: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, eq=False)
class SetRestart(Call):
    """Give it the restart policy of its spec."""

    restart: Restart
    updates: ClassVar[bool] = True

"""What is being done to a container, whichever part of the runtime does it."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.facts import Operation
from dlsched.runtime.docker.limits.resizes import Resizes
from dlsched.runtime.docker.moves.moves import Moves
from dlsched.runtime.machine.container import Machine
from dlsched.runtime.machine.inspected import Inspected


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations under way: stops first, then moves, then changes of limits."""

    machine: Machine
    moves: Moves
    resizes: Resizes

    @property
    def idle(self) -> bool:
        """Whether nothing is being done to any container."""
        return not self.machine.busy and self.moves.idle and self.resizes.idle

    def of(self, described: Inspected, now_s: float) -> Operation | None:
        """What is being done to that container; None: nothing."""
        operation = self.machine.of(described.container_id).operation(now_s)
        if operation is None and described.adopted is None:
            operation = self.moves.operation(described.job, now_s)
        return self.resizes.operation(described) if operation is None else operation

    def bars(self, container: str, job: str, now_s: float) -> str | None:
        """Why a container can now neither be given other limits nor be asked to leave; None: it
        can."""
        if self.resizes.updating(container):
            return "operation under way: updating"
        operation = self.machine.of(container).operation(now_s)
        if operation is None:
            operation = self.moves.operation(job, now_s)
        return None if operation is None else f"operation under way: {operation}"

"""The policy `none`: observe only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot


@dataclass(frozen=True, slots=True)
class NoneParameters:
    """It has no parameters."""


class NonePolicy:
    """Plain Docker: no ceilings, the kernel divides; jobs are still measured and shown.

    The baseline of every comparison. A ceiling in a job's own spec still holds: guards enforce the
    user's bounds.
    """

    Parameters: ClassVar[type[NoneParameters]] = NoneParameters
    Memory: ClassVar[None] = None
    reserves: ClassVar[bool] = False
    heeds_progress: ClassVar[bool] = False
    per_device: ClassVar[bool] = False

    def __init__(self, parameters: NoneParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        return Decision(
            limits={job.name: Limits() for job in snapshot.running},
            why={job.name: "plain Docker: no ceiling" for job in snapshot.running},
        )

"""The policy `none`: observe only. It must not set a ceiling on anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot


@dataclass(frozen=True, slots=True)
class NoneParameters:
    """There is nothing to choose."""


class NonePolicy:
    """Plain Docker: no ceiling for anyone, the kernel divides; measured and shown all the same.

    The baseline of every comparison. A ceiling that the job's own spec sets still holds: bounds
    are the user's word, and the guards keep it.
    """

    Parameters: ClassVar[type[NoneParameters]] = NoneParameters
    Memory: ClassVar[None] = None
    reserves: ClassVar[bool] = False
    heeds_progress: ClassVar[bool] = False
    per_device: ClassVar[bool] = False

    def __init__(self, parameters: NoneParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """No ceiling for any running job."""
        return Decision(
            limits={job.name: Limits() for job in snapshot.running},
            why={job.name: "plain Docker: no ceiling" for job in snapshot.running},
        )

"""A policy for a service under test: holds every job at one share, or hangs when told to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot

HANG = Path("/etc/dlsched/hang")
CORES = 0.2


@dataclass(frozen=True)
class HeldParameters:
    """None."""


class HeldPolicy:
    """Carried to where the service runs: nothing of the tests may be imported here."""

    Parameters: ClassVar[type[Any]] = HeldParameters
    Memory: ClassVar[type[Any] | None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, parameters: HeldParameters) -> None:
        """Every policy is made from its parameters."""

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """The same every time, unless it hangs."""
        while HANG.exists():
            time.sleep(0.05)
        limits = {job.name: Limits(CORES) for job in snapshot.running}
        return Decision(limits, dict.fromkeys(limits, "held by the test"), None, 1.0)

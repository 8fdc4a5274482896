"""A policy that keeps the limits it is given: how a bench measures a latency at a known share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot


@dataclass(frozen=True)
class FixedParameters:
    """What each job gets."""

    cores: str = ""
    """`job=cores,job=cores`; jobs that are not named have no ceiling."""


class FixedPolicy:
    """Every job keeps the cores that the bench chose for it."""

    Parameters: ClassVar[type[Any]] = FixedParameters
    Memory: ClassVar[type[Any] | None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, parameters: FixedParameters) -> None:
        pairs = (item.partition("=") for item in parameters.cores.split(",") if item)
        self._cores = {job: float(cores) for job, _, cores in pairs}

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """The same every time."""
        limits = {job.name: Limits(self._cores.get(job.name)) for job in snapshot.running}
        return Decision(limits, dict.fromkeys(limits, "fixed by the bench"), None, 60.0)

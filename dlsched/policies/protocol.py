"""The interface of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.state import Snapshot


@dataclass(frozen=True, slots=True)
class NoParameters:
    """The `Parameters` of a policy that has none."""


class Policy(Protocol):
    """A pure function: same snapshot and memory, same decision. It uses no clock, files, logging or
    randomness.

    `Parameters` is a frozen dataclass whose fields each have a default and a docstring with unit
    and reason. `Memory` is a frozen dataclass of plain values (at most 4 KiB a job), or None if the
    policy has no state. `traits` says how its decisions are to be treated. Guards enforce bounds,
    capacity, dead band and cool-down for all policies.

    It divides `Snapshot.resource`: the node's cores, or the time of one GPU. It is called once more
    for each GPU that jobs share, with a snapshot in which that GPU is a node of capacity 1 and
    fields named `cores` are fractions of its time (see `gpu_node`). `snapshot.resource.amount(0.5)`
    is correct in a reason for both.
    """

    Parameters: ClassVar[type[Any]]
    Memory: ClassVar[type[Any] | None]
    traits: ClassVar[PolicyTraits]

    def __init__(self, parameters: Any) -> None: ...

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """The limits of each running job, and the reasons."""

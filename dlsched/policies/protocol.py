"""The interface of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.state import Snapshot


@dataclass(frozen=True, slots=True)
class NoParameters:
    """The `Parameters` of a policy that has none."""


class Policy(Protocol):
    """A pure function: same snapshot and memory, same decision. It uses no clock, files, logging or
    randomness.

    `Parameters` is a frozen dataclass whose fields each have a default and a docstring with unit
    and reason. `Memory` is a frozen dataclass of plain values (at most 4 KiB a job), or None if the
    policy has no state. `reserves`: the sum of its ceilings stays within capacity, enforced by a
    guard. Guards enforce bounds, capacity, dead band and cool-down for all policies. They also set
    the share of a job whose progress is unknown, unless the class variable `heeds_progress` is
    False: the policy then decides without progress.

    It divides `Snapshot.resource`: the node's cores, or the time of one GPU. It is called once more
    for each GPU that jobs share, with a snapshot in which that GPU is a node of capacity 1 and
    fields named `cores` are fractions of its time (see `gpu_node`). `snapshot.resource.amount(0.5)`
    is correct in a reason for both. A policy for cores only has a class variable `per_device` that
    is False.

    Under a policy that has a class variable `observes_only` that is True, adopted containers stay
    as their owners made them.

    A policy that slows services down to their targets has a class variable `holds_at_target` that
    is True: the requests of open loops queue up under it.
    """

    Parameters: ClassVar[type[Any]]
    Memory: ClassVar[type[Any] | None]
    reserves: ClassVar[bool]

    def __init__(self, parameters: Any) -> None: ...

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """The limits of each running job, and the reasons."""


def divides_gpus(policy: Policy | type[Policy]) -> bool:
    """Whether the policy also divides the time of shared GPUs."""
    return bool(getattr(policy, "per_device", True))


def heeds_progress(policy: Policy) -> bool:
    """Whether the policy's decision for a job depends on that job's progress."""
    return bool(getattr(policy, "heeds_progress", True))


def observes_only(policy: Policy) -> bool:
    """Whether adopted containers stay as they are under this policy."""
    return bool(getattr(policy, "observes_only", False))


def holds_at_target(policy: Policy) -> bool:
    """Whether the policy slows down services that are faster than their targets."""
    return bool(getattr(policy, "holds_at_target", False))

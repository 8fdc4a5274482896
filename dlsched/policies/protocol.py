"""What a policy is. It must not know any, nor find them."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.state import Snapshot


class Policy(Protocol):
    """One method. Same snapshot and memory, same decision: no clock, files, logging, randomness.

    `Parameters` is a frozen dataclass whose fields each have a default and a docstring with unit
    and reason. `Memory` is a frozen dataclass of plain values (at most 4 KiB a job), or None when
    the policy remembers nothing. `reserves` says whether the sum of its ceilings stays within
    capacity (a guard then enforces it). Bounds, capacity, dead-band and cool-down are the guards'
    work, alike for all policies, and so is the share of a job whose progress nobody can see: unless
    the policy decides without any, and says so by a class variable `heeds_progress` that is False.

    It divides what `Snapshot.resource` says: the node's cores, or the time of one GPU. For each GPU
    that jobs share it is asked once more, with a snapshot in which that GPU is a node of capacity 1
    and fields named `cores` are parts of its time (see `gpu_node`). `snapshot.resource.amount(0.5)`
    is right in a reason for both. A policy that divides cores alone says so by a class variable
    `per_device` that is False.

    One that keeps services from being faster than their targets says it by a class variable
    `holds_at_target` that is True: requests that do not wait for answers queue up under it.
    """

    Parameters: ClassVar[type[Any]]
    Memory: ClassVar[type[Any] | None]
    reserves: ClassVar[bool]

    def __init__(self, parameters: Any) -> None: ...

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """What each running job should get, and why."""
        ...


def divides_gpus(policy: Policy | type[Policy]) -> bool:
    """Whether it is asked for the time of each shared GPU too."""
    return bool(getattr(policy, "per_device", True))


def heeds_progress(policy: Policy) -> bool:
    """Whether what it decides for a job hangs on that job's progress."""
    return bool(getattr(policy, "heeds_progress", True))


def holds_at_target(policy: Policy) -> bool:
    """Whether it slows down services that are faster than their targets."""
    return bool(getattr(policy, "holds_at_target", False))

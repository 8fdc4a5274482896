"""What a policy answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.model.forecast import Forecast
from dlsched.model.spec import Limits

PolicyMemory = object
"""A policy's memory: a frozen dataclass of plain values, or None at the start."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants, with a sentence why for each job; jobs that it leaves out stay as is."""

    limits: Mapping[str, Limits] = field(default_factory=dict)
    """`cpu_cores` are amounts of `Snapshot.resource`: of a GPU's time, parts of 1."""
    why: Mapping[str, str] = field(default_factory=dict)
    memory: PolicyMemory | None = None
    next_s: float = 0.0
    """When to be asked again; 0: at the next cycle. A wake asks at once."""
    gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the GPUs that a job should be on. Only one that declares `checkpoint` is moved."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Relative weights where jobs want more CPU than there is; one left out weighs as its ceiling,
    and a training with 0 runs on idle CPU alone where the kernel has a class for it. They hold
    until the policy is asked again."""
    outlooks: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    """What can be expected of each job's targets; they hold until the policy is asked again."""

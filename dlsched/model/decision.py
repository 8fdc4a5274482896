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


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """How the decisions of one policy are treated."""

    reserves: bool = False
    """Whether the sum of ceilings is held within capacity."""
    heeds_progress: bool = True
    """Whether a blind job gets an even share by weight instead of what is decided for it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a policy failed when it was last asked."""

    text: str
    in_a_row: int = 1
    final: bool = False
    """Whether it is no longer asked, and plain Docker is decided instead."""
    error: Exception | None = None
    """What it raised in this cycle; None: it failed in an earlier one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one cycle knows of a policy: its decision, and what its last one still says."""

    policy: str = ""
    decision: Decision | None = None
    """None: the policy was not asked in this cycle, or failed."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reasons of its last decision, by job."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Those of its last decision."""
    forecasts: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    """Those of its last decision; none while it fails."""
    rules: PolicyRules = field(default_factory=PolicyRules)
    failure: Failure | None = None
    """None: it answered when it was last asked."""

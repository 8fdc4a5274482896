"""A policy's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.model.forecast import Forecast
from dlsched.model.spec import Limits

PolicyMemory = object
"""A policy's memory: a frozen dataclass of plain values; None at the start."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Limits that a policy wants, and why. Jobs that it leaves out keep theirs."""

    limits: Mapping[str, Limits] = field(default_factory=dict)
    """`cpu_cores` are amounts of `Snapshot.resource`: cores, or a fraction of one GPU's time."""
    why: Mapping[str, str] = field(default_factory=dict)
    memory: PolicyMemory | None = None
    next_s: float = 0.0
    """Seconds until the next question; 0: next cycle. A wake asks immediately."""
    gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of each job's new GPUs. Only jobs that declare a `checkpoint` are moved."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Relative CPU weights, used while jobs want more CPU than there is. A job without one gets a
    weight equal to its ceiling. A training with 0 runs only on idle CPU, where the kernel has an
    idle class. Valid until the policy is asked again."""
    outlooks: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    """Forecasts for each job's targets, valid until the policy is asked again."""
    expected_s: Mapping[str, float] = field(default_factory=dict)
    """Latencies, as the jobs' targets measure them, that are expected under these limits. Shown
    beside what is measured after a change. Jobs for which nothing is foreseen are left out."""


@dataclass(frozen=True, slots=True)
class PolicyTraits:
    """What a policy is like: how the decider and the guards treat its decisions."""

    reserves: bool = False
    """Whether the sum of its ceilings stays within capacity. A guard sees to it."""
    heeds_progress: bool = True
    """Whether it decides by progress. A job that is not heard from then gets an equal share instead
    of its decision."""
    observes_only: bool = False
    """Whether adopted containers stay as they are. What was changed before is given back."""
    holds_at_target: bool = False
    """Whether it slows services down to their targets: requests of open loops then queue up."""
    divides_gpus: bool = True
    """Whether it also divides the time of each GPU that jobs share."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How a policy failed when it was last asked."""

    text: str
    in_a_row: int = 1
    final: bool = False
    """Whether it is no longer asked. Jobs then run as under plain Docker."""
    error: Exception | None = None
    """The exception raised in this cycle; None: it failed in an earlier one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One cycle's view of a policy: its decision, and what still holds of its last one. Without a
    new decision, `why`, `weights` and `forecasts` are those of the last one."""

    policy: str = ""
    decision: Decision | None = None
    """None: the policy was not asked in this cycle, or failed."""
    why: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    forecasts: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    """Empty while the policy fails."""
    traits: PolicyTraits = field(default_factory=PolicyTraits)
    failure: Failure | None = None
    """None: its last answer was valid."""

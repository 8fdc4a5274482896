"""The recommendation for each recorded container."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlsched.model.spec import Target
from dlsched.review.advice.memory import MemoryAdvice

LEAST_REQUESTS = 20
"""Fewer have no quantile worth a factor, and a mean that is off by a fifth or more."""


@dataclass(frozen=True, slots=True)
class Use:
    """Cores that a container used, by slices of ten seconds in which it ran throughout."""

    mean_cores: float
    busy_cores: float
    """The 95th percentile of the slices."""
    most_cores: float


@dataclass(frozen=True, slots=True)
class MeasuredTarget:
    """What was measured of a target while it was recorded."""

    seconds: float
    """The latency, as the target has it: mean or quantile."""
    requests: int
    met_ratio: float
    """Part of the slices with requests in which the target was met."""


@dataclass(frozen=True, slots=True)
class AdvisedLimits:
    """What one container needs for its target."""

    cores: float | None = None
    """The least ceiling that meets the target; None: unknown, or no number does."""
    useful_cores: float | None = None
    """More brings nothing; None: it was never given so much that this showed."""
    out_of_reach: str | None = None
    """Why no limit meets the target; None: one does, or nothing is known."""
    assumed: bool = False
    """Whether `cores` is more than it ever had, so that it is not known to use them."""
    guessed: bool = False
    """Whether what it was measured under does not show how much of a request is computation."""
    notes: tuple[str, ...] = ()
    likely_cores: float | None = None
    """One that probably meets it, where `cores` is cautious; None: `cores` is not."""
    does_not_fit: str | None = None
    """Why `cores` cannot be kept for it beside the others, though its target was met so far."""


@dataclass(frozen=True, slots=True)
class Recommended:
    """The recommendation for one container. Cores of None: no such limit."""

    name: str
    adopted: bool
    """Whether someone else started its container: it has labels, no job file."""
    target: Target | None
    recorded_s: float
    """How long its last run was recorded: what was used and measured is of this time alone."""
    use: Use | None
    measured: MeasuredTarget | None
    progress: str
    """What a training reached, as text; empty for others."""
    need: AdvisedLimits
    min_cores: float | None
    max_cores: float | None
    """Only of a container with `min_cores`: no other has a need that a ceiling could be held to."""
    cpu_shares: int | None
    """CPU weight in the engine's unit; None: no container gets another than it has."""
    weight: float
    """That of its job file or label."""
    why: str
    """Where the limits come from, in one sentence."""
    memory: MemoryAdvice | None = None
    """None: none of its memory was recorded."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendations, by name, and what they rest on."""

    jobs: tuple[Recommended, ...]
    room_cores: float
    """Cores that containers may use, less what other work on the host used."""
    recorded_s: float
    policies: tuple[str, ...]
    """Names of the policies that acted meanwhile."""
    remarks: tuple[str, ...] = field(default=())

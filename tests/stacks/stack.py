"""A program that people run, what reads it, and how far it was tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dlsched.runtime.progress.sources import METRICS


class Tried(StrEnum):
    """How far a stack was tried."""

    RUN = "really run"
    DOCUMENTED = "documented format"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Stack:
    """One serving or training program."""

    name: str
    title: str
    """As people call it."""
    preset: str
    """Empty: none; the labels say everything."""
    reads: str
    """What is read of it."""
    tried: Tried = Tried.RUN
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels beside the preset's name."""
    metric: str | None = None
    """Of a training, the target's metric; None: a service, with a latency."""
    group: str | None = None
    """The pattern's group, where it is not called as the metric."""
    printed_to: float = 0.0
    """Resolution of the printed metric."""
    unread: int = 0
    """Evaluations at the end that cannot be read."""
    ends_with_best: bool = False
    """Whether the best weights may be evaluated once more at the end."""
    has_quantiles: bool = True
    """Whether a percentile can be read."""
    problem: str | None = None
    """What must be told, since it cannot be read."""
    command: tuple[str, ...] = ()
    """The program under programs/, with its arguments."""
    packages: tuple[str, ...] = ()
    """Those whose versions say what was run; the first is the stack itself."""
    environment: str = "serving"
    """Of tests/stacks/requirements: what it runs in."""
    files: tuple[str, ...] = ()
    """Files of the system that it needs, and a container's base image lacks."""
    timeout_s: float = 240.0
    note: str = ""
    """What it needs beyond what the preset says, or why it was not run."""

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels that a container of it would have."""
        return {METRICS: self.preset, **self.labels} if self.preset else dict(self.labels)


LATENCY = "latency: mean and percentiles"
MEAN = "latency: mean"

"""The result of dividing a part of the node, for the policy `adaptive`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dlsched.model.forecast import Forecast

Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class Placed(Generic[Known]):
    """A part of the node, divided among jobs of one kind; mappings are by job."""

    limits: Mapping[str, float | None] = field(default_factory=dict)
    """Ceilings in cores; None: only the one of the job's spec."""
    uses: Mapping[str, float] = field(default_factory=dict)
    """Mean cores that each job is expected to use under its ceiling."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """CPU under contention is divided in this proportion."""
    open_loops: Mapping[str, float] = field(default_factory=dict)
    """Weights, in equal shares, of services that may be open loops, where weights divide."""
    why: Mapping[str, str] = field(default_factory=dict)
    outlooks: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    memory: tuple[Known, ...] = ()
    """Also of jobs that do not run now."""

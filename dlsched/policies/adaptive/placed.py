"""What either half of the policy `adaptive` gives to its jobs. It must not decide anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dlsched.model.forecast import Forecast

Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class Placed(Generic[Known]):
    """A part of the node, divided between jobs of one kind; mappings are by job."""

    limits: Mapping[str, float | None] = field(default_factory=dict)
    """Ceilings in cores; None: no other than the spec's."""
    uses: Mapping[str, float] = field(default_factory=dict)
    """Mean cores that each is expected to use under its ceiling."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Where jobs want more CPU than there is."""
    open_loops: Mapping[str, float] = field(default_factory=dict)
    """Services whose requests may come by themselves, where weights divide: how many even shares
    each of them weighs."""
    why: Mapping[str, str] = field(default_factory=dict)
    outlooks: Mapping[str, tuple[Forecast, ...]] = field(default_factory=dict)
    memory: tuple[Known, ...] = ()
    """What is remembered, also of jobs that do not run now."""

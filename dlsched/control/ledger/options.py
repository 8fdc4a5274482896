"""The operator's settings that shape a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dlsched.control.gpus.placement import PlacementOptions
from dlsched.control.ledger.blindness import BLIND_AFTER_S
from dlsched.estimate.evaluations import EVALUATIONS
from dlsched.model.spec import OwnerCeilings


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """The operator's settings that shape a snapshot."""

    capacity_cores: float | None = None
    """Cores to divide; None: all that the runtime found."""
    reserve_cores: float = 0.0
    reserve_memory_bytes: int = 0
    max_jobs: int = 64
    window_s: float = 30.0
    tier_evaluations: int = EVALUATIONS
    """How many evaluations in a row reach a tier."""
    blind_after_s: float = BLIND_AFTER_S
    """A running job with a target that told nothing for so long is blind."""
    idle_class: bool = False
    """Whether jobs may be put into the kernel's idle class."""
    ceilings_of: Callable[[int | None], OwnerCeilings | None] = lambda _: None
    """What one owner's jobs may have together; None: nothing bounds them."""
    gpus: PlacementOptions = field(default_factory=PlacementOptions)

"""Settings of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dlsched.control.gpus.holders import IDLE_AFTER_S
from dlsched.control.gpus.placement import PlacementOptions
from dlsched.control.ledger.blindness import BLIND_AFTER_S
from dlsched.estimate.evaluations import EVALUATIONS
from dlsched.model.spec import MAX_FAILED_RATIO, OwnerCeilings


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    capacity_cores: float | None = None
    """Cores to divide; None: all of the node's."""
    reserve_cores: float | None = 0.0
    """Cores of these that are kept for the host; None: by their number, see `cpu.host_cores`."""
    reserve_memory_bytes: int = 0
    max_jobs: int = 64
    window_s: float = 30.0
    tier_evaluations: int = EVALUATIONS
    """Number of consecutive evaluations that reach a tier."""
    blind_after_s: float = BLIND_AFTER_S
    """A running job with a target is blind after this long without a report."""
    max_failed_ratio: float = MAX_FAILED_RATIO
    """Part of a service's requests that may fail, where its target does not say."""
    idle_class: bool = False
    """Whether jobs may use the kernel's idle class."""
    ceilings_of: Callable[[int | None], OwnerCeilings | None] = lambda _: None
    """Limits on the sum over one owner's jobs; None: no limit."""
    gpu_idle_after_s: float | None = IDLE_AFTER_S
    """A holder of a GPU raises an alarm after this long without using it; None: never."""
    gpus: PlacementOptions = field(default_factory=PlacementOptions)

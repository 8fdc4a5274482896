"""The durable files of a simulated agent: what it has done with each job."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.cluster.core.records import Phase, Saved
from dlsched.simulation.node.training import Training


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint with the computation that goes on from it."""

    saved: Saved
    training: Training


@dataclass(slots=True)
class HeldJob:
    """One job's durable file."""

    epoch: int
    phase: Phase
    since_s: float
    due_s: float = math.inf
    """When the present step of a move ends."""
    source: str | None = None
    saved: Saved | None = None
    kept: Kept | None = None
    confirmed: bool = True
    began_step: int = 0
    failed: bool = False
    why: str = ""

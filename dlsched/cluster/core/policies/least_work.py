"""The policy `least-work`: least work left first, no moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.placing import decision
from dlsched.cluster.core.snapshot import (
    ClusterDecision,
    ClusterJob,
    ClusterMemory,
    ClusterSnapshot,
)
from dlsched.model.units import CORES_MIN, render_seconds


@dataclass(frozen=True, slots=True)
class LeastWorkParameters:
    """None."""


class LeastWorkPolicy:
    """A new job goes to the node with the least work left per core; no job moves.

    Least-work-left assignment (Harchol-Balter, Crovella and Murta 1999), by each job's most likely
    work. In simulations of equal nodes it was worse than `spread`, as a job's share of a node's
    cores depends on how many jobs it shares them with more than on how long they last.
    """

    Parameters: ClassVar[type[LeastWorkParameters]] = LeastWorkParameters

    def __init__(self, parameters: LeastWorkParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        return decision(Occupancy(snapshot), _least_work)


def _least_work(_job: ClusterJob, nodes: Sequence[str], occupancy: Occupancy) -> tuple[str, str]:
    work_s, node = min((_work_s(name, occupancy), name) for name in nodes)
    return node, f"{node} has the least work left: {render_seconds(work_s)} on all its cores"


def _work_s(node: str, occupancy: Occupancy) -> float:
    """How long all cores of the node together need for its jobs."""
    left_core_s = math.fsum(load.left_core_s for load in occupancy.loads(node))
    return left_core_s / max(occupancy.nodes[node].free_cores, CORES_MIN)

"""The policy `spread`: fewest jobs first, no moves."""

from __future__ import annotations

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
from dlsched.model.units import counted


@dataclass(frozen=True, slots=True)
class SpreadParameters:
    """None."""


class SpreadPolicy:
    """A new job goes to the node with the fewest jobs, as under Docker Swarm; no job moves.

    Swarm's spread strategy for services of one task each (swarmkit, manager/scheduler): among nodes
    that pass the filters, the one with the fewest tasks; here the first by name among equals.
    """

    Parameters: ClassVar[type[SpreadParameters]] = SpreadParameters

    def __init__(self, parameters: SpreadParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        return decision(Occupancy(snapshot), fewest_jobs)


def fewest_jobs(_job: ClusterJob, nodes: Sequence[str], occupancy: Occupancy) -> tuple[str, str]:
    """A `Choice`: the node with the fewest jobs."""
    node = min(nodes, key=lambda name: (len(occupancy.on[name]), name))
    return node, f"{node} has the fewest jobs: {counted(len(occupancy.on[node]), 'job')}"

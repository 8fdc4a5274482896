"""The policy `random` of simulated clusters: it moves jobs by chance. What does not beat it gains
nothing by its choice of moves. No real controller has it."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import ClassVar

from dlsched.cluster.core.benefit import Forecasts
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.placing import decision
from dlsched.cluster.core.policies.adaptive import LeastAdded
from dlsched.cluster.core.policies.spread import fewest_jobs
from dlsched.cluster.core.registry import CLUSTER, load
from dlsched.cluster.core.snapshot import (
    ClusterDecision,
    ClusterMemory,
    ClusterPolicy,
    ClusterSnapshot,
    Move,
)
from dlsched.policies.registry import split


@dataclass(frozen=True, slots=True)
class RandomParameters:
    """What is drawn, and how often."""

    seed: int = 0
    """Seed of the random choices; a simulation gives its own where none is written."""
    spread: bool = False
    """Whether jobs are placed as by `spread`; else as by `adaptive`."""
    moves_per_round: float = 0.1
    """Chance that a round moves a job."""

    def __post_init__(self) -> None:
        if not 0 <= self.moves_per_round <= 1:
            raise ValueError(f"moves_per_round is {self.moves_per_round}, must be 0 to 1")


class RandomPolicy:
    """Any movable job, to any node with room; what is chosen depends on seed, round and names."""

    Parameters: ClassVar[type[RandomParameters]] = RandomParameters

    def __init__(self, parameters: RandomParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        occupancy = Occupancy(snapshot)
        if self.parameters.spread:
            found = decision(occupancy, fewest_jobs)
        else:
            chooser = LeastAdded(Forecasts(occupancy), pull_s=30.0)
            found = decision(occupancy, chooser.choose)
        if found.moves or self._drawn(snapshot, "round") >= self.parameters.moves_per_round:
            return found
        jobs = sorted(snapshot.jobs, key=lambda job: self._drawn(snapshot, job.name))
        for job in jobs:
            if job.unmovable is not None or job.name in occupancy.transits:
                continue
            nodes = sorted(occupancy.nodes, key=lambda name: self._drawn(snapshot, job.name, name))
            for name in nodes:
                if name != job.node and occupancy.lacks(job, name) is None:
                    why = {**found.why, job.name: "moved by chance"}
                    return replace(found, moves=(Move(job.name, name),), why=why)
        return found

    def _drawn(self, snapshot: ClusterSnapshot, *names: str) -> float:
        """A number from 0 to below 1, the same for the same seed, round and names."""
        text = "/".join((str(self.parameters.seed), str(snapshot.round), *names))
        return zlib.crc32(text.encode()) / math.ldexp(1, 32)


NAME = "random"
SIMULATED = replace(
    CLUSTER, more=(EntryPoint(NAME, f"{__name__}:{RandomPolicy.__name__}", CLUSTER.entry_points),)
)
"""The policies that a simulated cluster can have."""


def simulated_policy(spelled: str, seed: int) -> ClusterPolicy:
    """The policy of `spelled`; `random` draws by the simulation's seed unless it has its own."""
    name, written = split(spelled)
    options = {"seed": seed} if name == NAME and "seed" not in written else None
    return load(spelled, options, SIMULATED)

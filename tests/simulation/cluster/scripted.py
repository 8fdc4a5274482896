"""A cluster policy that follows a script: one move, at a given time."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.snapshot import ClusterDecision, ClusterMemory, ClusterSnapshot, Move


@dataclass(frozen=True, slots=True)
class ScriptedParameters:
    job: str = "first"
    target: str = "right"
    at_s: float = 60.0


class Scripted:
    """Spread, and one move."""

    Parameters: ClassVar[type[ScriptedParameters]] = ScriptedParameters

    def __init__(self, parameters: ScriptedParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        decision = SpreadPolicy(SpreadParameters()).decide(snapshot, memory)
        rule = self.parameters
        there = {job.name: job for job in snapshot.jobs}
        due = memory is None and snapshot.now_s >= rule.at_s and rule.job in there
        moves = (Move(rule.job, rule.target),) if due else ()
        return replace(decision, moves=moves, memory=memory or (True if due else None), next_s=1.0)


@dataclass(frozen=True, slots=True)
class RestlessParameters:
    seed: int = 0


class Restless:
    """Spread, and moves of everything that can move, to and fro."""

    Parameters: ClassVar[type[RestlessParameters]] = RestlessParameters

    def __init__(self, parameters: RestlessParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        decision = SpreadPolicy(SpreadParameters()).decide(snapshot, memory)
        nodes = [node.name for node in snapshot.nodes]
        chance = random.Random(f"{self.parameters.seed}/{snapshot.round}")
        moves = [Move(job.name, chance.choice(nodes)) for job in snapshot.jobs]
        chance.shuffle(moves)
        return replace(decision, moves=tuple(moves), next_s=5.0)

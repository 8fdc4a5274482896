"""Who knows all work beforehand, on real containers: the shortest way to the first tier goes first.

Owns one rule. It is told what nobody knows while a job runs, so it is no peer but a measure: what
can be had of a clairvoyant's gain by weights and the idle class, on the containers as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import Limits
from dlsched.model.state import JobView, Snapshot

NAME = "benchmarks.peers.oracle:OraclePolicy"

_BEHIND_RATIO = 1e-3
"""What one job weighs of the one before it: far enough behind for the idle class."""


@dataclass(frozen=True, slots=True)
class OracleParameters:
    """What it knows."""

    works: str = ""
    """By job, the core-seconds from its start to its first tier, such as `cnn:21.9/vae:17.8`."""

    def __post_init__(self) -> None:
        if any(not core_s > 0 for core_s in known_works(self.works).values()):
            raise ValueError(f"works is {self.works!r}, must be above 0 core-seconds each")


def known_works(works: str) -> Mapping[str, float]:
    """The text in numbers. Raises ValueError."""
    pairs = (pair.split(":") for pair in works.split("/") if pair)
    return MappingProxyType({name: float(core_s) for name, core_s in pairs})


def spelled(works: Mapping[str, float]) -> str:
    """The policy that knows these works, as `--policy` takes it."""
    return f"{NAME}?works=" + "/".join(f"{name}:{core_s:.3f}" for name, core_s in works.items())


class OraclePolicy:
    """Shortest remaining work to the first tier, preemptive; who is there already comes last.

    The first has all it can use, the next takes what that leaves idle, and who comes after, where
    the idle class makes all alike, has no more than its floor.
    """

    Parameters: ClassVar[type[OracleParameters]] = OracleParameters
    Memory: ClassVar[type[object] | None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits(heeds_progress=False)

    def __init__(self, parameters: OracleParameters) -> None:
        self.parameters = parameters
        self._works = known_works(parameters.works)

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        left_core_s = {job.name: self._left_core_s(job) for job in snapshot.running}
        order = sorted(snapshot.running, key=lambda job: (left_core_s[job.name], job.name))
        return Decision(
            limits={
                job.name: Limits(
                    job.spec.bounds.floor_cores if place > 1 and job.may_idle else None
                )
                for place, job in enumerate(order)
            },
            why={
                name: "at its first tier" if core_s == math.inf else f"{core_s:.0f} core-s to it"
                for name, core_s in left_core_s.items()
            },
            weights={job.name: _BEHIND_RATIO**place for place, job in enumerate(order)},
        )

    def _left_core_s(self, job: JobView) -> float:
        known_core_s = self._works.get(job.name)
        if known_core_s is None or job.tiers.delivered is not None:
            return math.inf
        return max(known_core_s - job.attained_core_s, 0.0)

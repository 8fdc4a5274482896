"""Proportional control of latency: a ceiling grows with how late its service is.

Owns one rule. It must not model anything: what a model is worth is measured against this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dlsched.estimate.sketch import against_target_s
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import LatencyTarget, Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.fair_share import fair_shares


@dataclass(frozen=True, slots=True)
class ProportionalParameters:
    """How fast it goes, and what it leaves to everybody."""

    exponent: float = 0.7
    """Of measured over target: 1 would be right where latency is work over cores, less than that
    does not swing although the measurement is noisy and late."""
    floor_ratio: float = 0.05
    """Lowest ceiling as a ratio of an equal share, as everywhere in these comparisons."""
    interval_s: float = 1.0
    """Seconds between decisions, as everybody's in these comparisons."""


@dataclass(frozen=True, slots=True)
class ProportionalMemory:
    """What every ceiling is, in cores: kept here, since steps below the dead-band must add up."""

    cores: tuple[tuple[str, float], ...]


class ProportionalPolicy:
    """Each ceiling is multiplied by (measured / target)^0.7, then all are scaled onto the node.

    The controller that one would write first. What was measured is what finished wholly under the
    present ceiling; without any of that the ceiling stays. A job without a latency target keeps its
    fair share.
    """

    Parameters: ClassVar[type[ProportionalParameters]] = ProportionalParameters
    Memory: ClassVar[type[ProportionalMemory]] = ProportionalMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, parameters: ProportionalParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        rule, capacity = self.parameters, snapshot.node.capacity_cores
        jobs = snapshot.running
        shares = fair_shares(jobs, capacity)
        known = dict(memory.cores) if isinstance(memory, ProportionalMemory) else {}
        floor = rule.floor_ratio * capacity / max(1, len(jobs))
        wanted: dict[str, float] = {}
        why: dict[str, str] = {}
        for job in jobs:
            was, late = known.get(job.name, shares[job.name]), lateness(job)
            if not isinstance(job.spec.target, LatencyTarget):
                wanted[job.name], why[job.name] = shares[job.name], "no latency target: fair share"
            elif late is None:
                wanted[job.name], why[job.name] = was, "nothing measured: as before"
            else:
                wanted[job.name] = min(max(was * late**rule.exponent, floor), capacity)
                why[job.name] = f"at {late:.2f} of its target: wants {wanted[job.name]:.3f} cores"
        # Everybody above the floor gives the same part of what is above it.
        above = {name: max(0.0, cores - floor) for name, cores in wanted.items()}
        held = math.fsum(min(cores, floor) for cores in wanted.values())
        part = min(1.0, max(0.0, capacity - held) / (math.fsum(above.values()) or 1.0))
        cores = {name: min(one, floor) + part * above[name] for name, one in wanted.items()}
        return Decision(
            limits={name: Limits(one) for name, one in cores.items()},
            why={name: f"{told}, gets {cores[name]:.3f}" for name, told in why.items()},
            memory=ProportionalMemory(tuple(cores.items())),
            next_s=rule.interval_s,
        )


def lateness(job: JobView) -> float | None:
    """Measured latency over target, above 1 for late; None where there is nothing to compare."""
    target = job.spec.target
    if not isinstance(target, LatencyTarget):
        return None
    measured = against_target_s(job.progress.window, target)
    return None if not measured else measured / target.seconds

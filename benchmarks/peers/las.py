"""Least attained service: who has had least CPU so far goes first.

Owns one rule. It must not look at progress: that is what it is compared for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import Snapshot


@dataclass(frozen=True, slots=True)
class LasParameters:
    """The queues."""

    first_core_s: float = 100.0
    """Core-seconds in the first queue."""
    growth: float = 4.0
    """How many times as much the next queue lets through: so no job is further down than its work
    deserves by more than that, whatever the sizes are."""
    queues: int = 4
    """How many there are; the last one has no end."""
    precedence: float = 50.0
    """How many times a queue weighs what the next one does: nearly all, where both want the same
    cores, and the kernel's weights have room for three such steps."""
    interval_s: float = 5.0
    """Seconds between decisions: a small part of what the first queue takes."""


class LasPolicy:
    """Trainings sink through queues as they compute; a higher queue has all it can use first.

    Tiresias' discretised least attained service (NSDI 2019), reconstructed for one node: attained
    service is core-seconds, a queue goes before the next by weight and not by preemption, and those
    of one queue share evenly, where Tiresias goes by arrival. Nothing has a ceiling, so no core
    idles that anybody can use. Jobs that are no trainings count as if they had just come.
    """

    Parameters: ClassVar[type[LasParameters]] = LasParameters
    Memory: ClassVar[type[object] | None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits(heeds_progress=False)

    def __init__(self, parameters: LasParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        rule = self.parameters
        queues = {
            job.name: self.queue(job.attained_core_s)
            if isinstance(job.spec.target, AccuracyTarget)
            else 0
            for job in snapshot.running
        }
        return Decision(
            limits=dict.fromkeys(queues, Limits()),
            why={
                job.name: f"{job.attained_core_s:.0f} core-seconds: queue {queues[job.name] + 1}"
                for job in snapshot.running
            },
            weights={name: rule.precedence**-queue for name, queue in queues.items()},
            next_s=rule.interval_s,
        )

    def queue(self, attained_core_s: float) -> int:
        """The queue of a job that has had so much, from 0."""
        rule = self.parameters
        if attained_core_s < rule.first_core_s:
            return 0
        steps = math.log(attained_core_s / rule.first_core_s) / math.log(rule.growth)
        return min(rule.queues - 1, 1 + math.floor(steps + 1e-9))

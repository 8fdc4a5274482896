"""Upsizing and downsizing one service at a time, in the manner of PARTIES.

Owns one rule. It must not model anything: it tries, looks, and takes back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.peers.proportional import lateness
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import LatencyTarget, Limits
from dlsched.model.state import Snapshot
from dlsched.policies.fair_share import fair_shares


@dataclass(frozen=True, slots=True)
class PartiesParameters:
    """The thresholds, and how much is moved."""

    violated_slack: float = 0.05
    """A service with less slack than this, as a ratio of its target, violates it or soon will."""
    spare_slack: float = 0.2
    """A service with more slack than this, as a ratio of its target, can give."""
    unit_ratio: float = 0.1
    """What is moved at once, as a ratio of an equal share: its own units are whole cores, of which
    forty services on a node of sixteen have none to give."""
    floor_ratio: float = 0.05
    """Lowest ceiling as a ratio of an equal share, as everywhere in these comparisons."""
    wait_s: float = 30.0
    """After a downsizing that was taken back, so long until the same service is tried again."""
    interval_s: float = 1.0
    """Seconds between decisions, as everybody's in these comparisons; its own are half that."""


@dataclass(frozen=True, slots=True)
class PartiesMemory:
    """Every ceiling in cores, the last downsizing, and who is not to be tried again yet."""

    cores: tuple[tuple[str, float], ...]
    downsized: tuple[str, float] | None = None
    """Who was made smaller last, and what it had."""
    spared: tuple[tuple[str, float], ...] = ()
    """By service, until when it is not made smaller."""


class PartiesPolicy:
    """Who violates its target gets a unit of CPU, else who has slack gives one; one at a time.

    PARTIES (doi 10.1145/3297858.3304005), reconstructed on one resource, CPU: the thresholds of
    slack and one adjustment at a time are the paper's as recalled, the rest is this project's
    reading. The service with the least slack comes first. Its unit comes from what nobody has, else
    from who has most slack, if that is spare. While nobody violates, who has most slack gives a
    unit to nobody; if it violates next, it gets it back, and is left alone for a while.

    A service without anything measured under its present ceiling is left alone; a job without a
    latency target keeps its fair share.
    """

    Parameters: ClassVar[type[PartiesParameters]] = PartiesParameters
    Memory: ClassVar[type[PartiesMemory]] = PartiesMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, parameters: PartiesParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        rule, capacity = self.parameters, snapshot.node.capacity_cores
        jobs = snapshot.running
        shares = fair_shares(jobs, capacity)
        known = memory if isinstance(memory, PartiesMemory) else PartiesMemory(())
        if {name for name, _ in known.cores} != set(shares):
            # Somebody came or went: begin anew from what is fair.
            known = PartiesMemory(tuple(shares.items()))
        cores = dict(known.cores)
        spared = {name: until_s for name, until_s in known.spared if until_s > snapshot.now_s}
        slack = {job.name: 1.0 - late for job in jobs if (late := lateness(job)) is not None}
        why = {job.name: _told(slack.get(job.name), cores[job.name]) for job in jobs}

        equal = capacity / max(1, len(jobs))
        unit, floor = rule.unit_ratio * equal, rule.floor_ratio * equal
        downsized = known.downsized
        if downsized is not None and slack.get(downsized[0], 1.0) < rule.violated_slack:
            name, cores[name] = downsized[0], downsized[1]
            spared[name] = snapshot.now_s + rule.wait_s
            why[name] += ": violated, takes back what it gave"
            downsized = None
        elif downsized is None or downsized[0] in slack:
            downsized = None
            needy = [name for name, one in slack.items() if one < rule.violated_slack]
            needy = [name for name in needy if cores[name] < capacity]
            rich = [name for name, one in slack.items() if one > rule.spare_slack]
            rich = [name for name in rich if cores[name] > floor and name not in spared]
            giver = max(rich, key=lambda name: (slack[name], name), default=None)
            if needy:
                taker = min(needy, key=lambda name: (slack[name], name))
                free = max(0.0, capacity - math.fsum(cores.values()))
                given = min(unit, free)
                if given < unit and giver is not None:
                    taken = min(unit - given, cores[giver] - floor)
                    cores[giver] -= taken
                    given += taken
                    why[giver] += f": gives {taken:.3f} to {taker}"
                cores[taker] = min(cores[taker] + given, capacity)
                why[taker] += f": gets {given:.3f}"
            elif giver is not None:
                downsized = (giver, cores[giver])
                cores[giver] = max(cores[giver] - unit, floor)
                why[giver] += f": tried with {cores[giver]:.3f}"
        for job in jobs:
            if not isinstance(job.spec.target, LatencyTarget):
                cores[job.name] = shares[job.name]
        return Decision(
            limits={name: Limits(one) for name, one in cores.items()},
            why=why,
            memory=PartiesMemory(tuple(cores.items()), downsized, tuple(sorted(spared.items()))),
            next_s=rule.interval_s,
        )


def _told(slack: float | None, cores: float) -> str:
    if slack is None:
        return f"nothing measured under {cores:.3f} cores"
    return f"slack {slack:+.2f} with {cores:.3f} cores"

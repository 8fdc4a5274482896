"""What a scheduler that knows all work in advance would reach on a simulated cluster. It moves
trainings for free, and start-up, checkpoints and services cost it nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.simulation import bounds
from dlsched.simulation.bounds import Period, Supply
from dlsched.simulation.cluster.scoring import ClusterScore
from dlsched.simulation.node.workloads import Trace, TraceNode
from dlsched.simulation.node.world import DEFAULT_SHARES, divide
from dlsched.simulation.scoring import works_of

CLAIRVOYANT = "clairvoyant"


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    mean_s: float
    """From arrival to the end, shortest first over the cores of all nodes together: a strong
    schedule, not a proven bound."""
    makespan_s: float
    """A lower bound: no schedule ends sooner."""


def clairvoyant(trace: Trace) -> Clairvoyant:
    works, supply = list(works_of(trace).values()), supply_of(trace)
    wanted = list(bounds.goals(works, None).values())
    return Clairvoyant(bounds.mean_s(wanted, supply), bounds.makespan_s(works, supply))


def supply_of(trace: Trace) -> Supply:
    """The trace's nodes over time. A node that drains stays, as jobs may run there to their end."""
    changes_s = {0.0, *(node.joins_s for node in trace.nodes)}
    for node in trace.nodes:
        for load in node.host:
            changes_s |= {load.at_s, load.at_s + load.for_s}
    return tuple(
        Period(
            from_s,
            tuple(
                sorted(
                    (
                        (node.speed, _free_cores(node, from_s, len(trace.jobs)))
                        for node in trace.nodes
                        if node.joins_s <= from_s
                    ),
                    reverse=True,
                )
            ),
        )
        for from_s in sorted(changes_s)
    )


def _free_cores(node: TraceNode, now_s: float, jobs: int) -> float:
    """What the host's other work leaves. It has at least what it would have beside all jobs, each
    of the engine's default weight, so the bound holds for jobs that weigh no more together."""
    host = [load for load in node.host if load.at_s <= now_s < load.at_s + load.for_s]
    claims = [(float(load.cpu_shares), load.cores) for load in host]
    beside = (float(DEFAULT_SHARES * jobs), math.inf)
    return node.node.cores - math.fsum(divide(node.node.cores, [*claims, beside])[: len(host)])


@dataclass(frozen=True, slots=True)
class ClairvoyantScore:
    """The clairvoyant beside the first contender under one seed."""

    scenario: str
    contender: str
    seed: int
    mean_s: float
    makespan_s: float
    mean_ratio: float
    makespan_ratio: float | None
    """None: some training of the first contender did not end."""


def clairvoyant_scores(trace: Trace, first: Sequence[ClusterScore]) -> tuple[ClairvoyantScore, ...]:
    """Beside the first contender's scores, one a seed."""
    best = clairvoyant(trace)
    return tuple(
        ClairvoyantScore(
            one.scenario,
            CLAIRVOYANT,
            one.seed,
            best.mean_s,
            best.makespan_s,
            best.mean_s / one.mean_s,
            best.makespan_s / one.makespan_s if one.makespan_s else None,
        )
        for one in first
    )

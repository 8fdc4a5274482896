"""Where jobs go that have no node, or whose node drains: a policy chooses among those with room."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dlsched.cluster.core.occupancy import Occupancy, lacks, summary
from dlsched.cluster.core.snapshot import ClusterDecision, ClusterJob, Move, NodeState
from dlsched.control.admission import rank_s
from dlsched.model.units import render_seconds

PLACED_PER_ROUND = 64
"""Jobs of the queue that one round considers, so that a burst of arrivals does not make it slow;
the next round takes those behind."""
SOON_S = 1.0
"""Until that next round."""

Choice = Callable[[ClusterJob, Sequence[str], Occupancy], tuple[str, str]]
"""Chooses one of the nodes that have room for the job (at least one, sorted), and says why."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The first job that has to wait for room, and the node on which it is to start."""

    job: ClusterJob
    node: str
    starts_s: float


def in_order(queue: Sequence[ClusterJob]) -> list[ClusterJob]:
    """By arrival; a job of weight 2 as if it had come 10 minutes earlier (`rank_s`)."""
    return sorted(queue, key=lambda job: (rank_s(job.weight, job.arrived_s), job.name))


ROUND_S = 10.0
"""Between rounds, where a policy has no interval of its own."""


def place(occupancy: Occupancy, choose: Choice, round_s: float = ROUND_S) -> ClusterDecision:
    """The nodes of queued jobs, which are added to the occupancy.

    The first job that fits nowhere now keeps its place: others go before it only where the forecast
    of its start does not get later (EASY backfilling, Lifka 1995). A job that would not even fit on
    an empty node keeps none.
    """
    place: dict[str, str] = {}
    why: dict[str, str] = {}
    head: _Head | None = None
    considered = 0
    empty: dict[object, dict[str, str | None]] = {}  # computed once for jobs that ask the same
    for job in in_order(occupancy.snapshot.queue):
        if (shape := _shape(job)) not in empty:
            empty[shape] = {name: lacks(job, node) for name, node in occupancy.nodes.items()}
        if None not in empty[shape].values():
            why[job.name] = f"fits no node: {summary(empty[shape])}"
            continue
        considered += 1
        if considered > PLACED_PER_ROUND:
            why[job.name] = "waits for a later round: too many jobs are before it in the queue"
            continue
        reasons = {name: occupancy.lacks(job, name) for name in occupancy.nodes}
        nodes = [name for name, reason in reasons.items() if reason is None]
        if head and head.node in nodes and _delays(head, job, occupancy):
            nodes.remove(head.node)
            reasons = {**reasons, head.node: f"would delay {head.job.name}, the first in the queue"}
        if nodes:
            node, because = choose(job, nodes, occupancy)
            place[job.name], why[job.name] = node, because
            occupancy.add(job, node)
            continue
        why[job.name] = f"no room now: {summary(reasons)}"
        if head is None:
            head = _head(job, occupancy)
            if head:
                why[job.name] += (
                    f"; the first to start, on {head.node} in about {render_seconds(head.starts_s)}"
                )
    next_s = SOON_S if considered > PLACED_PER_ROUND else round_s
    return ClusterDecision(place, why=why, next_s=next_s)


def starts_s(
    job: ClusterJob, node: str, occupancy: Occupancy, beside: Sequence[ClusterJob] = ()
) -> float:
    """Seconds until enough jobs on the node are done for this one to fit; infinite: never. `beside`
    are jobs that are to start there now."""
    there = [*occupancy.on[node], *beside]
    loads = [occupancy.load(one, node) for one in there]
    ends = sorted(zip(occupancy.ends(node, loads), range(len(there)), strict=True))
    gone: list[ClusterJob] = []
    for end_s, index in [(0.0, -1), *ends]:
        if index >= 0:
            gone.append(there[index])
        if occupancy.lacks(job, node, gone, beside) is None:
            return end_s
    return math.inf


def _shape(job: ClusterJob) -> object:
    """All that decides whether it fits an empty node."""
    return (
        job.floor_cores,
        tuple(job.requires.items()),
        None if job.pulls else job.image,
        tuple(job.barred.items()),
    )


def _head(job: ClusterJob, occupancy: Occupancy) -> _Head | None:
    ready = [name for name, one in occupancy.nodes.items() if one.state is NodeState.READY]
    start_s, node = min((starts_s(job, name, occupancy), name) for name in ready)
    return _Head(job, node, start_s) if start_s < math.inf else None


def _delays(head: _Head, job: ClusterJob, occupancy: Occupancy) -> bool:
    return starts_s(head.job, head.node, occupancy, (job,)) > head.starts_s + 1e-6


def moves_off(occupancy: Occupancy, choose: Choice) -> ClusterDecision:
    """Moves off draining nodes, and the reason of each of their jobs: at most one move from each
    node, none while one is under way from it. The target is added to the occupancy, so that no job
    of the queue takes that room."""
    moves: list[Move] = []
    why: dict[str, str] = {}
    leaving = {transit.source for transit in occupancy.transits.values()}
    arriving = {transit.target for transit in occupancy.transits.values()}
    for node in occupancy.nodes.values():
        if node.state is not NodeState.DRAINING:
            continue
        for job in list(occupancy.on[node.name]):
            if job.name in occupancy.transits:
                continue
            if job.unmovable is not None:
                why[job.name] = f"{node.name} drains, and the job cannot be moved: {job.unmovable}"
                continue
            if node.name in leaving:
                why[job.name] = f"{node.name} drains: its jobs move one by one"
                continue
            if occupancy.snapshot.now_s < job.rests_until_s:
                why[job.name] = f"{node.name} drains; the job waits after a move that failed"
                continue
            reasons = {name: occupancy.lacks(job, name) for name in occupancy.nodes}
            reasons |= {
                name: "another job is moving there"
                for name in arriving
                if reasons.get(name, "") is None
            }
            nodes = sorted(name for name, reason in reasons.items() if reason is None)
            if not nodes:
                why[job.name] = f"{node.name} drains, and no node has room: {summary(reasons)}"
                continue
            target, because = choose(job, nodes, occupancy)
            moves.append(Move(job.name, target))
            why[job.name] = f"{node.name} drains; {because}"
            occupancy.add(job, target, job.pause_s)
            leaving.add(node.name)
            arriving.add(target)
    return ClusterDecision(moves=tuple(moves), why=why)


def decision(occupancy: Occupancy, choose: Choice) -> ClusterDecision:
    """A decision without moves but those off draining nodes."""
    draining = moves_off(occupancy, choose)
    found = place(occupancy, choose)
    return replace(found, moves=draining.moves, why={**draining.why, **found.why})

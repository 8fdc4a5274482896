"""Nodes that drain: each of their jobs that can be moved goes elsewhere, whatever it costs."""

from __future__ import annotations

from typing import NamedTuple

from dlsched.cluster.core.model import Move, NodeState
from dlsched.cluster.core.occupancy import Occupancy, summary
from dlsched.cluster.core.placing import Choice


class Evacuation(NamedTuple):
    """Moves off draining nodes, and the reason for each of their jobs."""

    moves: tuple[Move, ...]
    why: dict[str, str]


def moves_off(occupancy: Occupancy, choose: Choice) -> Evacuation:
    """At most one move from each draining node, none while one is under way from it. The target is
    added to the occupancy, so that no job of the queue takes that room."""
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
                why[job.name] = f"{node.name} drains, and it cannot be moved: {job.unmovable}"
                continue
            if node.name in leaving:
                why[job.name] = f"{node.name} drains: its jobs move one by one"
                continue
            if occupancy.snapshot.now_s < job.rests_until_s:
                why[job.name] = f"{node.name} drains; it rests after a move that failed"
                continue
            reasons = {name: occupancy.lacks(job, name) for name in occupancy.nodes}
            reasons |= {
                name: "a job is moving there" for name in arriving if reasons.get(name, "") is None
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
    return Evacuation(tuple(moves), why)

"""What every cluster policy is held to: jobs start only where they fit, and move rarely, one at a
time from and to a node. A pure function; its memory says which moves it let through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlsched.cluster.core.benefit import REST_AFTER_UNDO_S
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.snapshot import ClusterDecision, ClusterSnapshot, Move, NodeState
from dlsched.model.units import counted, render_seconds, shown

NODES_PER_MOVE = 16
"""One move under way for each so many nodes, but at least one."""
MOVED_AGAIN_S = 600.0
"""Until a job may move again, and until another job has moved in between (but at most an hour)."""
REST_S = 600.0
"""After a move that failed: of the job, and of moves from that source to that target."""
REPORTS_MIN = 3
"""A job moves after so many reports: its remaining work is too uncertain before."""
DONE_RATIO_MIN = 0.03
"""A job moves after so much of its work, as its forecast is a guess before."""
PAUSES_MIN = 2.0
"""A job that is done within so many pauses stays."""
_HOUR_S = 3600.0


class Passed(NamedTuple):
    """A move that was let through."""

    job: str
    source: str
    target: str
    at_s: float
    undo: bool = False
    failed: bool = False
    """Whether the job was back on its source without a move under way."""


@dataclass(frozen=True, slots=True)
class Approved:
    """What of a decision is carried out."""

    place: dict[str, str] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    """The reason by job whose placement or move was refused."""
    passed: tuple[Passed, ...] = ()
    """Moves of the last hour, the oldest first."""


def guard(
    snapshot: ClusterSnapshot,
    decision: ClusterDecision,
    recent: Sequence[Passed] = (),
    *,
    by_hand: bool = False,
) -> Approved:
    """The placements and moves that keep the rules. Moves go first, as they have waited for their
    turn; each placement then needs room beside them. `recent`: what had `passed` before. Moves
    `by_hand` need not rest or be worth their cost."""
    occupancy = Occupancy(snapshot)
    passed = _judged(occupancy, recent)
    refused: dict[str, str] = {}
    moves: list[Move] = []
    # What is under way, with the moves of this decision.
    sources = {one.source for one in snapshot.moving}
    targets = {one.target for one in snapshot.moving}
    most = max(1, len(snapshot.nodes) // NODES_PER_MOVE)
    for move in decision.moves:
        problem = _unfit_move(occupancy, move)
        if problem is None:
            source = occupancy.jobs[move.job].node or ""
            if source in sources:
                problem = f"another job is moving from {source}"
            elif move.target in targets:
                problem = f"another job is moving to {move.target}"
            elif len(snapshot.moving) + len(moves) >= most:
                problem = f"{counted(most, 'move')} under way, the most in this cluster"
            elif not by_hand:
                problem = _too_soon(occupancy, move, passed)
        if problem is not None:
            refused[move.job] = f"not moved to {shown(move.target)}: {problem}"
            continue
        moves.append(move)
        job = occupancy.jobs[move.job]
        passed.append(Passed(move.job, source, move.target, snapshot.now_s, move.undo))
        sources.add(source)
        targets.add(move.target)
        occupancy.add(job, move.target, job.pause_s)

    place: dict[str, str] = {}
    queue = {job.name: job for job in snapshot.queue}
    for name, node in decision.place.items():
        if name not in queue:
            refused[name] = "not placed: the job is not in the queue"
        elif node not in occupancy.nodes:
            refused[name] = f"not placed: there is no node {shown(node)}"
        elif reason := occupancy.lacks(queue[name], node):
            refused[name] = f"not placed on {node}: {reason}"
        else:
            place[name] = node
            occupancy.add(queue[name], node)
    return Approved(place, tuple(moves), refused, tuple(passed))


def _judged(occupancy: Occupancy, passed: Sequence[Passed]) -> list[Passed]:
    """The moves of the last hour, with those that failed since."""
    now_s = occupancy.snapshot.now_s
    recent = [one for one in passed if now_s - one.at_s < _HOUR_S]
    last = {one.job: index for index, one in enumerate(recent)}
    for name, index in last.items():
        job, one = occupancy.jobs.get(name), recent[index]
        if job and job.node == one.source and name not in occupancy.transits and not one.failed:
            # Rests count from here.
            recent[index] = one._replace(failed=True, at_s=now_s)
    return recent


def _unfit_move(occupancy: Occupancy, move: Move) -> str | None:
    """Why the job cannot be moved there at all."""
    job = occupancy.jobs.get(move.job)
    if job is None or job.node is None:
        return "the job does not run"
    if move.job in occupancy.transits:
        return "the job is moving already"
    if move.target not in occupancy.nodes:
        return "there is no such node"
    if move.target == job.node:
        return "the job runs there already"
    if job.unmovable is not None:
        return f"the job cannot be moved: {job.unmovable}"
    source = occupancy.nodes.get(job.node)
    if source is None or source.state is NodeState.SILENT:
        return f"{job.node} does not report"
    return occupancy.lacks(job, move.target)


def _too_soon(occupancy: Occupancy, move: Move, passed: list[Passed]) -> str | None:
    """Why the job or the two nodes have to rest. A draining node's jobs need not wait for the rules
    about cost, and an undone move need not wait after the move itself."""
    now_s = occupancy.snapshot.now_s
    job = occupancy.jobs[move.job]
    source = occupancy.nodes[job.node or ""]
    if now_s < job.rests_until_s:
        rest = render_seconds(job.rests_until_s - now_s)
        return f"the job's last move failed; it may be moved again in {rest}"
    own = [one for one in passed if one.job == move.job]
    for one in passed:
        rests_s = one.at_s + REST_S - now_s
        pair = (one.source, one.target) == (source.name, move.target)
        if one.failed and rests_s > 0 and (pair or one.job == move.job):
            return (
                f"{one.job}'s move to {one.target} failed; the next try is in "
                f"{render_seconds(rests_s)}"
            )
    if source.state is NodeState.DRAINING:
        return None
    last = own[-1] if own else None
    undoes = (move.target, source.name, False)
    if move.undo and last and (last.source, last.target, last.undo) == undoes:
        return None
    if last:
        rest_s = REST_AFTER_UNDO_S if last.undo else MOVED_AGAIN_S
        if now_s - last.at_s < rest_s:
            return f"the job moved {render_seconds(now_s - last.at_s)} ago"
        if passed[-1] is last:
            return "no other job has moved since this one did"
    if job.reports < REPORTS_MIN:
        return f"the job has reported {job.reports} times, {REPORTS_MIN} are needed"
    if job.left is None:
        return None
    if job.done_core_s < DONE_RATIO_MIN * (job.done_core_s + job.left.mid_core_s):
        return f"the job has done less than {DONE_RATIO_MIN:.0%} of its work"
    index = occupancy.on[source.name].index(job)
    rest_s = occupancy.ends(source.name, occupancy.loads(source.name))[index]
    if rest_s < PAUSES_MIN * job.pause_s:
        return f"the job is done in {rest_s:.0f} s, a move stops it for {job.pause_s:.0f} s"
    return None

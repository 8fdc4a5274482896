"""The policy `adaptive`: starts jobs where they delay others least, and moves few."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from dlsched.cluster.core.benefit import (
    END_WEIGHT,
    Effect,
    Forecasts,
    effect,
    measured_speed,
    undo,
)
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.placing import moves_off, place
from dlsched.cluster.core.snapshot import (
    ALTERNATIVES_MAX,
    FORECAST_MAX_S,
    Alternative,
    ClusterDecision,
    ClusterJob,
    ClusterMemory,
    ClusterSnapshot,
    Move,
    NodeState,
)
from dlsched.model.units import CORES_MIN

_PAIRED = 2
"""Nodes that end last, and nodes that end first, between which moves are considered."""
_SPEED_KEPT_S = 7200.0
_JUDGED_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class AdaptiveParameters:
    """What the policy weighs."""

    moves: bool = True
    """Whether running jobs may be moved; if false, jobs are only placed, and moved only off nodes
    that are drained."""
    bold: bool = False
    """Whether a gain for the cluster as a whole suffices for a move. If false, the job itself must
    also end no later, and no job on the target node much later: fewer moves, and few jobs that lose
    by them."""
    end_weight: float = END_WEIGHT
    """Weight of the time at which the cluster's last job ends: one second of it counts as much as
    so many seconds of a single job's end."""
    least_pauses: float = 1.5
    """Least gain of a move, as a multiple of the job's pause: forecasts are inexact."""
    least_gain_s: float = 5.0
    """Least gain of a move in seconds, in addition to that by `least_pauses`."""
    pull_s: float = 30.0
    """Assumed seconds that a job waits on a node that lacks its image."""
    round_s: float = 10.0
    """Seconds between two decisions on where jobs run."""

    def __post_init__(self) -> None:
        for name in ("end_weight", "least_pauses", "least_gain_s", "pull_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}, must be at least 0 and finite")
        if not 1 <= self.round_s <= 3600:
            raise ValueError(f"round_s is {self.round_s}, must be 1 to 3600")


class Moved(NamedTuple):
    """A move that was decided, until the job's speed on the target is judged."""

    job: str
    source: str
    target: str
    steps_per_core_s: float
    """On the source."""


class Speed(NamedTuple):
    """A measured speed of an image on a node."""

    image: str
    node: str
    speed: float
    until_s: float


@dataclass(frozen=True, slots=True)
class AdaptiveMemory:
    """Moves to be judged, and speeds measured when moves were undone."""

    moved: tuple[Moved, ...] = ()
    speeds: tuple[Speed, ...] = ()


class AdaptivePolicy:
    """Jobs start where they delay completions least; few move, and only where the forecast gains.

    Ours. A new job goes to the node on which the forecast sum of weighted completions grows least.
    Of the two nodes that end last and the two that end first, the best move is taken if, with low,
    likely and high work left of the job, it gains more than 1.5 pauses and 5 s, the job itself ends
    no later, and no job on the target ends later than 1.1 times as late and 10 s. A gain is how
    much earlier jobs complete by weight, and three times how much earlier the cluster's last one
    does. A job that turns out much slower on its new node, per core-second, goes back once, if it
    ends earlier so.

    Completions are those of the fluid forecast. Where nothing is known of a job's work, it is
    placed as if it had the others' mean, and does not move.
    """

    Parameters: ClassVar[type[AdaptiveParameters]] = AdaptiveParameters

    def __init__(self, parameters: AdaptiveParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        rule = self.parameters
        before = memory if isinstance(memory, AdaptiveMemory) else AdaptiveMemory()
        speeds = [one for one in before.speeds if one.until_s > snapshot.now_s]
        occupancy = Occupancy(snapshot, {(one.image, one.node): one.speed for one in speeds})
        forecasts = Forecasts(occupancy)
        chooser = LeastAdded(forecasts, rule.pull_s)

        draining = moves_off(occupancy, chooser.choose)
        moves, why = list(draining.moves), dict(draining.why)
        moved = {one.job: one for one in before.moved if _to_judge(one, occupancy)}
        for move, text, speed in _undone(moved, occupancy) if rule.moves else ():
            moves.append(move)
            why[move.job] = text
            speeds.append(speed)
            job = occupancy.jobs[move.job]
            occupancy.add(job, move.target, job.pause_s)
            forecasts.refresh(move.target)
        found = place(occupancy, chooser.choose, rule.round_s)
        why |= found.why
        best = _Best()
        if rule.moves and not moves:
            for node in set(found.place.values()):
                forecasts.refresh(node)
            best = self._best_moves(forecasts)
            moves += best.moves
            why |= best.why
            for move in best.moves:
                job = occupancy.jobs[move.job]
                if job.node is not None and job.steps_per_core_s is not None:
                    moved[job.name] = Moved(job.name, job.node, move.target, job.steps_per_core_s)
        remembered = AdaptiveMemory(tuple(moved.values()), tuple(speeds))
        return replace(
            found,
            moves=tuple(moves),
            why=why,
            memory=remembered,
            forecasts_s=best.forecasts_s,
            alternatives=best.alternatives,
        )

    def _best_moves(self, forecasts: Forecasts) -> _Best:
        """The moves that gain enough, the best first; guards take one. And the reasons, also of
        the best move of each job that gains too little."""
        found = _Best()
        by_job, full = _considered(forecasts, self.parameters.end_weight)
        for effects in by_job.values():
            effects.sort(key=lambda one: -one.gain_s)
        likely = [effects[0] for effects in by_job.values()]
        ranked = sorted(likely, key=lambda one: (-one.gain_s, one.job))
        for index, one in enumerate(ranked):
            problem = self._lacks(one, forecasts)
            rest, least_s = full.get(one.job, []), self._least_s(forecasts.occupancy.jobs[one.job])
            others = [
                _alternative(
                    other,
                    other.lacks(least_s, self.parameters.bold)
                    or f"would {other.gains}, less than a move to {one.target}",
                )
                for other in by_job[one.job][1:]
            ]
            if problem is not None:
                found.why[one.job] = (
                    f"stays on {one.source}, as no move is good enough; after the best one, to "
                    f"{one.target}, the job {problem}"
                )
                others.insert(0, _alternative(one, problem))
            found.alternatives[one.job] = (*others, *rest)[:ALTERNATIVES_MAX]
            if problem is not None:
                continue
            found.moves.append(Move(one.job, one.target))
            found.forecasts_s[one.job] = one.own_after_s - one.own_before_s
            found.why[one.job] = (
                f"{one.source}>{one.target}: gains {one.gain_s:.0f} s; the job ends in "
                f"{one.own_after_s:.0f} s instead of {one.own_before_s:.0f} s, the cluster's last "
                f"one in {one.end_after_s:.0f} s instead of {one.end_before_s:.0f} s"
            )
            if index + 1 < len(ranked):
                other = ranked[index + 1]
                found.why[one.job] += f"; next {other.job} to {other.target}: would {other.gains}"
        for name in full.keys() - by_job.keys():
            found.alternatives[name] = tuple(full[name])
        return found

    def _least_s(self, job: ClusterJob) -> float:
        """What a move of it has to gain."""
        rule = self.parameters
        return rule.least_pauses * job.pause_s + rule.least_gain_s

    def _lacks(self, likely: Effect, forecasts: Forecasts) -> str | None:
        """What the move lacks with the likely, the least or the most work left; None: nothing."""
        rule = self.parameters
        job = forecasts.occupancy.jobs[likely.job]
        least_s = self._least_s(job)
        if problem := likely.lacks(least_s, rule.bold):
            return problem
        left = forecasts.occupancy.left[job.name]
        for amount, core_s in (("little", left.low_core_s), ("much", left.high_core_s)):
            found = effect(forecasts, job, likely.source, likely.target, core_s, rule.end_weight)
            if problem := found.lacks(least_s, rule.bold):
                return f"{problem}, if as {amount} of its work is left as the forecast allows"
        return None


@dataclass(frozen=True, slots=True)
class _Best:
    """The moves that gain enough, and what else was considered."""

    moves: list[Move] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    forecasts_s: dict[str, float] = field(default_factory=dict)
    alternatives: dict[str, tuple[Alternative, ...]] = field(default_factory=dict)


def _considered(
    forecasts: Forecasts, end_weight: float
) -> tuple[dict[str, list[Effect]], dict[str, list[Alternative]]]:
    """The effects of all moves between the nodes that end last and those that end first, by job;
    and nodes that would have been among them, but cannot take the job."""
    occupancy = forecasts.occupancy
    now_s = occupancy.snapshot.now_s
    leaving = {one.source for one in occupancy.transits.values()}
    arriving = {one.target for one in occupancy.transits.values()}
    ready = [name for name, one in occupancy.nodes.items() if one.state is NodeState.READY]
    ready.sort(key=lambda name: (forecasts.last(name), name))
    sources = [name for name in ready if name not in leaving][-_PAIRED:]
    targets = [name for name in ready if name not in arriving]
    found: dict[str, list[Effect]] = {}
    full: dict[str, list[Alternative]] = {}
    for source in sources:
        for job in occupancy.on[source]:
            fixed = job.unmovable is not None or job.left is None
            if fixed or job.name in occupancy.transits or job.name not in occupancy.jobs:
                continue
            if now_s < job.rests_until_s:
                continue
            left_core_s = occupancy.left[job.name].mid_core_s
            effects: list[Effect] = []
            refused: list[Alternative] = []
            for target in targets:
                if target == source:
                    continue
                lack = occupancy.lacks(job, target)
                if lack is None:
                    one = effect(forecasts, job, source, target, left_core_s, end_weight)
                    effects.append(one)
                    if len(effects) == _PAIRED:
                        break
                elif len(refused) < ALTERNATIVES_MAX:
                    refused.append(Alternative(target, lack))
            if effects:
                found[job.name] = effects
            if refused:
                full[job.name] = refused
    return found, full


def _alternative(one: Effect, refused: str) -> Alternative:
    gain_s = one.gain_s if abs(one.gain_s) <= FORECAST_MAX_S else None
    return Alternative(one.target, refused, gain_s)


def _to_judge(moved: Moved, occupancy: Occupancy) -> bool:
    """Whether the job is still where the move was to begin or to end, and not there for long."""
    job = occupancy.jobs.get(moved.job)
    if job is None or job.node == moved.source or moved.job in occupancy.transits:
        return job is not None
    return job.node == moved.target and (
        occupancy.snapshot.now_s - job.placed_at_s < _JUDGED_WITHIN_S
    )


def _undone(moved: dict[str, Moved], occupancy: Occupancy) -> list[tuple[Move, str, Speed]]:
    """Moves back, and what was measured; such moves are judged no more."""
    found = []
    for one in list(moved.values()):
        job = occupancy.jobs[one.job]
        if job.node != one.target or one.job in occupancy.transits:
            continue
        reason = undo(occupancy, job, one.source, one.steps_per_core_s)
        if reason is None or occupancy.lacks(job, one.source) is not None:
            continue
        speed = measured_speed(job, one.steps_per_core_s, occupancy.nodes[one.source].speed)
        until_s = occupancy.snapshot.now_s + _SPEED_KEPT_S
        kept = Speed(job.image, one.target, speed or 1.0, until_s)
        found.append((Move(one.job, one.source, undo=True), reason, kept))
        del moved[one.job]
    return found


_CANDIDATES = 4
"""Forecast for a placement: as many nodes with the most idle cores, and with the least work."""


class LeastAdded:
    """Chooses the node on which the forecast sum of weighted completions grows least."""

    def __init__(self, forecasts: Forecasts, pull_s: float) -> None:
        self._forecasts = forecasts
        self._pull_s = pull_s
        self._stale: str | None = None
        """The node that was chosen last, to which the job was added then."""
        self._idle: dict[str, float] = {}
        self._work: dict[str, float] = {}

    def choose(
        self, job: ClusterJob, nodes: Sequence[str], _occupancy: Occupancy
    ) -> tuple[str, str]:
        """A `Choice`."""
        if self._stale is not None:
            self._forecasts.refresh(self._stale)
            self._idle.pop(self._stale, None)
        names: Sequence[str] = nodes
        if len(nodes) > 2 * _CANDIDATES:
            for name in self._forecasts.loads.keys() - self._idle.keys():
                self._rate(name)
            idle = heapq.nsmallest(_CANDIDATES, nodes, key=lambda name: (-self._idle[name], name))
            work = heapq.nsmallest(_CANDIDATES, nodes, key=lambda name: (self._work[name], name))
            names = sorted({*idle, *work})
        occupancy = self._forecasts.occupancy
        added = []
        for name in names:
            waits_s = 0.0 if occupancy.nodes[name].has_image(job.image) else self._pull_s
            added.append((self._forecasts.added_s(job, name, waits_s), name))
        added.sort()
        added_s, node = added[0]
        self._stale = node
        why = f"on node {node}, the job adds least to all jobs' completion times: {added_s:.0f} s"
        if len(added) > 1:
            why += f"; next {added[1][1]}: {added[1][0]:.0f} s"
        return node, why

    def _rate(self, node: str) -> None:
        cores = self._forecasts.occupancy.nodes[node].free_cores
        loads = self._forecasts.loads[node]
        self._idle[node] = cores - math.fsum(load.parallel_cores for load in loads)
        work = math.fsum(load.left_core_s for load in loads)
        self._work[node] = work / max(cores, CORES_MIN)

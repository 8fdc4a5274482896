"""The policy `specon`: a reconstruction of SpeCon, which moves converged trainings away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.placing import moves_off, place
from dlsched.cluster.core.policies.spread import fewest_jobs
from dlsched.cluster.core.snapshot import (
    ClusterDecision,
    ClusterJob,
    ClusterMemory,
    ClusterSnapshot,
    Growth,
    Move,
    NodeState,
)

_OLDEST_S = 3600.0
"""Evaluations older than this count as so old."""


@dataclass(frozen=True, slots=True)
class SpeConParameters:
    """Constants of the reconstruction; the paper's figures for them were not at hand."""

    alpha: float = 0.1
    """Growth, as a ratio of the job's own peak, below which a job slows down."""
    interval_s: float = 10.0
    """Seconds of which the evaluations are averaged."""
    round_s: float = 30.0
    """Seconds between moves."""
    idle_weight: float = 0.5
    """How much of a job a converged one counts as in a node's score."""
    min_gap: float = 1.0
    """Least difference of two nodes' scores for a move."""
    min_age_s: float = 30.0
    """Seconds on its node until a job is classed: the first intervals are all growth."""

    def __post_init__(self) -> None:
        for name in ("alpha", "idle_weight", "min_gap", "min_age_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}, must be at least 0 and finite")
        for name in ("interval_s", "round_s"):
            if not 1 <= getattr(self, name) <= 3600:
                raise ValueError(f"{name} is {getattr(self, name)}, must be 1 to 3600")


@dataclass(frozen=True, slots=True)
class SpeConJob:
    """What the policy remembers of a training."""

    name: str
    first_s: float
    """Of its first evaluation, from which intervals count."""
    interval: int = 0
    """The interval that is being averaged."""
    total: float = 0.0
    """Of the values in it so far."""
    count: int = 0
    mean_at_s: float = 0.0
    """End of the last interval that had evaluations."""
    mean: float | None = None
    """Of that interval."""
    peak: float = 0.0
    """Fastest growth so far, in the metric's unit per second."""
    growth: Growth = Growth.PROGRESSING
    since_s: float = 0.0
    """Of its class."""


@dataclass(frozen=True, slots=True)
class SpeConMemory:
    """The classes, and when a move is next considered."""

    jobs: tuple[SpeConJob, ...] = ()
    move_at_s: float = 0.0


class SpeConPolicy:
    """Trainings whose metric hardly changes any more move from crowded nodes to less crowded ones.

    A reconstruction of SpeCon (speculative container scheduling for deep learning on Docker Swarm)
    without the authors' code or constants. New jobs start as under `spread`. E_m is the mean of a
    job's evaluations in interval m, t_m the interval's end; an interval without any changes
    nothing.

    1. g = |E_m - E_(m-1)| / (t_m - t_(m-1)); peak is the largest g so far.
    2. g < alpha peak: progressing -> watching -> converged; else progressing. No class changes
       before min_age_s on the node.
    3. Score of a node: its jobs, a converged one counted as idle_weight.
    4. Each round_s, if no move is under way: of the converged jobs that never moved, by score of
       their node, then by time of convergence, then by name, the first one for which the lowest
       score of another node with room is at least min_gap below its own node's moves there.

    Known weaknesses, kept: the metric's noise counts as growth; neither the work left, nor the
    pause, nor a node's size counts; a move that slows the job is not undone.
    """

    Parameters: ClassVar[type[SpeConParameters]] = SpeConParameters

    def __init__(self, parameters: SpeConParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: ClusterSnapshot, memory: ClusterMemory | None) -> ClusterDecision:
        rule = self.parameters
        before = memory if isinstance(memory, SpeConMemory) else SpeConMemory()
        known = {one.name: one for one in before.jobs}
        classed = {
            job.name: found
            for job in snapshot.jobs
            if (found := _classed(known.get(job.name), job, rule, snapshot.now_s)) is not None
        }
        occupancy = Occupancy(snapshot)
        draining = moves_off(occupancy, fewest_jobs)
        moves, why = draining.moves, dict(draining.why)
        move_at_s = before.move_at_s
        if snapshot.now_s >= move_at_s:
            move_at_s = snapshot.now_s + rule.round_s
            if not moves and not snapshot.moving:
                chosen, text = _move(occupancy, classed, rule)
                if chosen is not None:
                    moves, why[chosen.job] = (chosen,), text
        placed = place(occupancy, fewest_jobs, min(rule.interval_s, rule.round_s))
        remembered = SpeConMemory(tuple(classed.values()), move_at_s)
        return replace(placed, moves=moves, why={**why, **placed.why}, memory=remembered)


def _classed(
    known: SpeConJob | None, job: ClusterJob, rule: SpeConParameters, now_s: float
) -> SpeConJob | None:
    """The job with its evaluations up to now; None: it has had none."""
    for at_s, value in job.evaluations:
        heard_s = min(max(at_s, now_s - _OLDEST_S), now_s)
        if known is None:
            known = SpeConJob(job.name, first_s=heard_s, since_s=heard_s)
        interval = math.ceil((heard_s - known.first_s) / rule.interval_s - 1e-9)
        if interval > known.interval:
            known = replace(_closed(known, job, rule), interval=interval)
        known = replace(known, total=known.total + value, count=known.count + 1)
    if known is not None and now_s >= known.first_s + known.interval * rule.interval_s:
        known = replace(_closed(known, job, rule), interval=known.interval + 1)
    return known


def _closed(known: SpeConJob, job: ClusterJob, rule: SpeConParameters) -> SpeConJob:
    """The job after the end of its present interval."""
    if known.count == 0:
        return known
    at_s = known.first_s + known.interval * rule.interval_s
    mean = known.total / known.count
    found = replace(known, total=0.0, count=0, mean_at_s=at_s, mean=mean)
    if known.mean is None:
        return found
    rate = abs(mean - known.mean) / (at_s - known.mean_at_s)
    peak = max(known.peak, rate)
    found = replace(found, peak=peak)
    if at_s - job.placed_at_s < rule.min_age_s:
        return found
    if rate >= rule.alpha * peak:
        growth = Growth.PROGRESSING
    elif known.growth is Growth.PROGRESSING:
        growth = Growth.WATCHING
    else:
        growth = Growth.CONVERGED
    return found if growth is known.growth else replace(found, growth=growth, since_s=at_s)


def _move(
    occupancy: Occupancy, classed: dict[str, SpeConJob], rule: SpeConParameters
) -> tuple[Move | None, str]:
    """The one move of this round, and why; None: none."""

    def counts(job: ClusterJob) -> float:
        return rule.idle_weight if _converged(job, classed) else 1.0

    scores = {name: math.fsum(map(counts, jobs)) for name, jobs in occupancy.on.items()}
    candidates = [
        (-scores[name], classed[job.name].since_s, job.name, job)
        for name, jobs in occupancy.on.items()
        if occupancy.nodes[name].state is NodeState.READY
        for job in jobs
        if _converged(job, classed) and job.moves == 0 and job.unmovable is None
        if occupancy.snapshot.now_s >= job.rests_until_s
    ]
    order: Sequence[str] = sorted(scores, key=lambda name: (scores[name], name))
    for negative, _, name, job in sorted(candidates, key=lambda one: one[:3]):
        target = next(
            (node for node in order if node != job.node and occupancy.lacks(job, node) is None),
            None,
        )
        if target is not None and -negative - scores[target] >= rule.min_gap:
            return Move(name, target), (
                f"converged; {job.node} scores {-negative:.1f}, {target} {scores[target]:.1f}"
            )
    return None, ""


def _converged(job: ClusterJob, classed: dict[str, SpeConJob]) -> bool:
    known = classed.get(job.name)
    return job.has_target and known is not None and known.growth is Growth.CONVERGED

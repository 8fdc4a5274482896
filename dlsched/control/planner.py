"""Planner: turns approved limits into ordered actions, by their difference to the applied state.

Shrinks come before growths, so that the sum of ceilings stays within capacity between any two
actions. No limit is changed here: that is for the policy and the guards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean, median_high, median_low

from dlsched.control.ceilings import applied_ceilings, owner_rooms
from dlsched.control.guard_rules import GuardOptions
from dlsched.control.guards import Approved, observed_only
from dlsched.control.ledger.updated import State
from dlsched.model.actions import Action, Move, Resize, Start
from dlsched.model.decision import Answer
from dlsched.model.gpu_time import as_node, in_steps, starts_on
from dlsched.model.spec import JobSpec, LatencyTarget, Limits
from dlsched.model.state import JobView
from dlsched.model.units import on_grain, same_cores

DEFAULT_SHARES = 1024
"""The engine's weight of a container that asks for none."""

_LEAST_SHARES, _MOST_SHARES = 2, 262144
_SHARES_BAND_RATIO = 0.25
"""Shares change together with a limit; alone only if they differ by more than this."""
_SCALE_RATIO = 2.0
"""The scale of shares may be off the ideal one by this factor, either way."""
_SAME_SCALE = 0.05
"""Weights whose shares are this close to the scale are unchanged, as small shares are rounded."""
_IDLE_RATIO, _BACK_RATIO = 0.01, 0.02
"""Hysteresis: a training enters the idle class below the first fraction of the heaviest weight, and
leaves it above the second. Low weights alone hardly keep it behind: any running thread makes a CPU
busy to the kernel, which then does not move a heavier waiting thread there."""


def plan(
    state: State, answer: Answer, approved: Approved, options: GuardOptions
) -> tuple[Action, ...]:
    """All actions in order: removals, shrinks, growths, moves, starts. A moving job keeps its
    applied limits, except for GPU time that is not free at its destination. Background jobs and the
    trainings with the lowest weights enter the idle class if allowed."""
    reserves = answer.traits.reserves
    shares = _shares(state, answer, approved)
    resizes = _resizes(state, answer, approved, options, shares)
    resizes.sort(key=lambda resize: (resize.grows, resize.job))
    owners = owner_rooms(state.snapshot, state.starts, options.ceilings_of)
    starts = [
        Start(
            spec=spec,
            limits=replace(
                _first_limits(state, approved, spec, owners, reserves),
                gpu_share=_first_share(state, approved, spec),
            ),
            cpu_shares=shares[spec.name],
            source=state.desired.sources.get(spec.name, ""),
            gpus=state.placements.get(spec.name, ()),
        )
        for spec in state.starts
    ]
    removals = state.removals
    if reserves:  # lifting a limit would use room that is reserved for others
        removals = tuple(replace(removal, lift=None) for removal in removals)
    return (*removals, *resizes, *_moves(state, approved, shares), *starts)


def _resizes(
    state: State,
    answer: Answer,
    approved: Approved,
    options: GuardOptions,
    shares: Mapping[str, int],
) -> list[Resize]:
    """Changes of running jobs, unordered."""
    weights, running = answer.weights, state.snapshot.running
    heaviest = max(
        (weights.get(job.name, 0.0) for job in running if job.trains_on_cpus), default=0.0
    )
    resizes: list[Resize] = []
    for job in running:
        wanted = approved.limits.get(job.name)
        if wanted is None or job.container_id is None or job.operation is not None:
            continue
        if approved.move is not None and job.name == approved.move.job:
            continue
        if observed_only(job, answer):
            if job.altered:
                resizes.append(_giving_back(job, wanted, answer))
            continue
        share = shares[job.name]
        burst = _burst(job, wanted, options.burst_ratio)
        same = same_cores(wanted.cpu_cores, job.actual.cpu_cores)
        idle = _idle(job, weights.get(job.name), heaviest)
        weighs = job.cpu_shares is None or abs(job.cpu_shares - share) <= _SHARES_BAND_RATIO * share
        if idle or job.cpu_idle:
            weighs = idle and job.cpu_idle
        bursts = burst is None or same_cores(burst, job.burst_cores)
        paced = same_cores(wanted.gpu_share, job.actual.gpu_share)
        if same and weighs and bursts and paced:
            continue
        resize = Resize(
            job=job.name,
            container_id=job.container_id,
            before=job.actual,
            limits=wanted,
            cpu_shares=share,
            why=answer.why.get(job.name, ""),
            burst_cores=burst,
            cpu_idle=idle,
            ceiling_cores=job.spec.bounds.ceiling_cores,
            shares_before=job.cpu_shares,
            burst_before=job.burst_cores,
            idle_before=job.cpu_idle,
        )
        if answer.traits.reserves and job.cpu_idle and not idle and resize.grows:
            # Its weight needs no room.
            resizes.append(replace(resize, limits=job.actual))
            resize = replace(resize, shares_before=share, burst_before=burst, idle_before=False)
        resizes += [resize] if same or paced else _one_direction(resize)
    return resizes


def _giving_back(job: JobView, limits: Limits, answer: Answer) -> Resize:
    """The change that gives an adopted container back what it had."""
    why = "the policy only observes"
    if answer.failure is not None and answer.failure.final:
        why = answer.failure.text
    return Resize(
        job=job.name,
        container_id=job.container_id or "",
        before=job.actual,
        limits=limits,
        cpu_shares=job.cpu_shares or DEFAULT_SHARES,
        why=f"given back: {why}",
        gives_back=True,
    )


def _one_direction(resize: Resize) -> list[Resize]:
    """Split a change that shrinks one resource and grows the other, as all shrinks come first. A
    smaller share becomes a change of its own. A larger one waits for the next cycle."""
    before, after = resize.before, resize.limits
    share = replace(resize, limits=replace(before, gpu_share=after.gpu_share))
    if share.grows == resize.grows:
        return [resize]
    if share.grows:
        return [replace(resize, limits=replace(after, gpu_share=before.gpu_share))]
    return [share, replace(resize, before=share.limits)]


def _moves(state: State, approved: Approved, shares: Mapping[str, int]) -> list[Move]:
    """The approved move, if its job still runs."""
    wanted, snapshot = approved.move, state.snapshot
    job = next((job for job in snapshot.running if wanted and job.name == wanted.job), None)
    if wanted is None or job is None or job.container_id is None or job.spec.checkpoint is None:
        return []
    moved = replace(state, starts=(job.spec,), placements={job.name: wanted.gpus})
    share = _first_share(moved, approved, job.spec)
    if share is not None and job.actual.gpu_share is not None:
        share = min(share, job.actual.gpu_share)
    start = Start(
        spec=job.spec,
        limits=replace(job.actual, gpu_share=share),
        cpu_shares=shares[job.name],
        source=state.desired.sources.get(job.name, ""),
        gpus=wanted.gpus,
    )
    troubled = {gpu.uuid for gpu in snapshot.node.gpus if gpu.fact.trouble is not None}
    has_lost = job.gpu_lost is not None or not troubled.isdisjoint(job.gpus)
    saved = job.progress.checkpoint is not None and has_lost
    return [Move(job.container_id, start, job.spec.checkpoint, wanted.why, saved)]


def _burst(job: JobView, limits: Limits, ratio: float) -> float | None:
    """CPU time that it may save up and use beyond its ceiling; None: its original burst."""
    wanted = ratio > 0 and isinstance(job.spec.target, LatencyTarget)
    if not wanted or job.burst_cores is None or limits.cpu_cores is None:
        return None
    return ratio * limits.cpu_cores


def _idle(job: JobView, weight: float | None, heaviest: float) -> bool:
    if not job.may_idle:
        return False
    if job.spec.background:
        return True
    if weight is None:
        return False
    return weight <= (_BACK_RATIO if job.cpu_idle else _IDLE_RATIO) * heaviest


def _first_limits(
    state: State,
    approved: Approved,
    spec: JobSpec,
    owners: Mapping[int | None, float],
    reserves: bool,
) -> Limits:
    """A new container's limits until the policy first decides on it: its ceiling, for a quick
    start, or an equal part of what the owner's other jobs leave of their common ceiling. Under a
    policy that reserves, an equal part of what all others leave, as the sum of ceilings must
    fit."""
    snapshot, limits = state.snapshot.foreground, approved.limits
    grain = snapshot.node.grain_cores
    least = spec.bounds.least_cores(grain)
    ceiling = spec.bounds.ceiling_cores
    if spec.owner in owners:
        theirs = [job for job in state.snapshot.running if job.spec.owner == spec.owner]
        given = sum(limits.get(job.name, job.actual).cpu_cores or 0.0 for job in theirs)
        count = sum(each.owner == spec.owner for each in state.starts)
        part = least + max(0.0, owners[spec.owner] - given) / count
        ceiling = part if ceiling is None else min(part, ceiling)
    if not reserves or spec.background:
        return Limits(on_grain(ceiling, least, grain))
    capacity = snapshot.node.capacity_cores
    begun = {each.name for each in state.starts if not each.background}
    given = 0.0
    for name, actual in applied_ceilings(snapshot).items():
        cores = limits[name].cpu_cores if name in limits else actual
        given += 0.0 if name in begun else capacity if cores is None else cores
    part = max(0.0, capacity - given) / len(begun)
    part = part if ceiling is None else min(part, ceiling)
    return Limits(on_grain(part, least, grain))


def _first_share(state: State, approved: Approved, spec: JobSpec) -> float | None:
    """A new container's share of its GPUs' time; None: it has them exclusively. An equal part of
    what others leave on its fullest GPU, but at least its floor."""
    gpus, bounds = state.placements.get(spec.name, ()), spec.bounds
    if not gpus or bounds.floor_share >= 1:
        return None
    share = bounds.ceiling_share
    for uuid in gpus:
        begun = {each.name: each for each in starts_on(uuid, state.starts, state.placements)}
        floors = math.fsum(each.bounds.floor_cores for each in begun.values())
        left = 1.0 - floors
        for name, actual in applied_ceilings(as_node(state.snapshot, uuid)).items():
            given = approved.limits[name].gpu_share if name in approved.limits else None
            left -= 0.0 if name in begun else actual if given is None else given
        share = min(share, bounds.floor_share + max(0.0, left) / len(begun))
    return in_steps(share, bounds.floor_share)


def _shares(state: State, answer: Answer, approved: Approved) -> dict[str, int]:
    """CPU shares by weight or, without weights, by ceiling with the engine's default as mean.

    With weights, the engine's default is the median of all jobs but trainings, so that most of them
    compare with foreign containers as without dlsched. The scale stays while it is close and most
    weights are unchanged, so one changed weight does not change all shares. Background jobs weigh
    what is kept for them, or the least that the engine takes.
    """
    only_observes = answer.traits.observes_only
    snapshot = state.snapshot if only_observes else state.snapshot.foreground
    last = [*(job.spec for job in state.snapshot.running), *state.starts]
    last = [spec for spec in last if spec.background and not only_observes]
    decided = answer.weights
    capacity = snapshot.node.capacity_cores
    weights: dict[str, float] = {}
    jobs = [job for job in snapshot.running if not observed_only(job, answer)]
    for job in jobs:
        cores = approved.limits.get(job.name, job.actual).cpu_cores
        weights[job.name] = decided.get(job.name, capacity if cores is None else cores)
    first = [weights[job.name] for job in jobs if not job.trains_on_cpus]
    typical = median_high(first) if decided and first else fmean(weights.values() or (0.0,))
    typical = typical or capacity or 1.0
    scale = DEFAULT_SHARES / typical
    scales = [
        job.cpu_shares / weights[job.name]
        for job in jobs
        if job.cpu_shares is not None and weights[job.name] > 0
    ]
    now = median_low(scales) if scales else scale
    same = sum(abs(one - now) <= _SAME_SCALE * now for one in scales)
    if decided and 2 * same > len(scales) and scale / _SCALE_RATIO <= now <= _SCALE_RATIO * scale:
        scale = now
    weights |= {spec.name: spec.kept_cores for spec in last}
    shares = {
        name: max(_LEAST_SHARES, min(_MOST_SHARES, round(scale * weight)))
        for name, weight in weights.items()
    }
    return {**{spec.name: DEFAULT_SHARES for spec in state.starts}, **shares}

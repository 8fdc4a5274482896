"""From guarded limits to ordered actions: the difference to what is in force.

Owns CPU shares, who goes to the idle class, bursts, what a start begins with, and the order of
actions: shrinks come before what grows, so that the sum of ceilings stays within capacity also
between two actions. It must not change a limit: that is the policy's and the guards'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median_high, median_low
from types import MappingProxyType

from dlsched.model.actions import Action, Move, Remove, Resize, Start
from dlsched.model.spec import AccuracyTarget, JobSpec, LatencyTarget, Limits, OwnerCeilings
from dlsched.model.state import JobState, JobView, Snapshot
from dlsched.model.units import on_grain, same_cores
from dlsched.policies.gpu_time import as_node, in_steps, same_share, starts_on

DEFAULT_SHARES = 1024
"""The engine's weight of a container that asks for none."""

_HOLDS_CEILING = frozenset(
    state for state in JobState if state.holds and state is not JobState.PULLING
)
_LEAST_SHARES, _MOST_SHARES = 2, 262144
_SHARES_BAND_RATIO = 0.25
"""Shares follow a changed limit at once, and otherwise only when they are off by so much."""
_SCALE_RATIO = 2.0
"""The scale of shares may be so many times what it would be now, or its inverse."""
_SAME_SCALE = 0.05
"""Weights whose shares are so near the scale have not changed: small shares are rounded."""
_IDLE_RATIO, _BACK_RATIO = 0.01, 0.02
"""A training that weighs less than this part of the heaviest goes to the idle class, and comes back
from the second on. By weights alone it would hardly stay behind: the kernel counts a CPU as taken
by whoever runs on it, and does not move there the threads of one that outweighs it."""


def plan(
    snapshot: Snapshot,
    limits: Mapping[str, Limits],
    why: Mapping[str, str],
    starts: Sequence[JobSpec] = (),
    removals: Sequence[Remove] = (),
    *,
    reserves: bool = False,
    sources: Mapping[str, str] | None = None,
    placements: Mapping[str, tuple[str, ...]] | None = None,
    moves: Mapping[str, tuple[tuple[str, ...], str]] | None = None,
    burst_ratio: float = 0.0,
    weights: Mapping[str, float] = MappingProxyType({}),
    ceilings_of: Callable[[int | None], OwnerCeilings | None] = lambda _: None,
) -> tuple[Action, ...]:
    """What has to be done, in order: removals, shrinks, growths, moves, starts.

    `placements` are the UUIDs of the GPUs of those starts that get any; `moves` are those of
    running jobs that change theirs, and why. A job on its move keeps the limits that are in force,
    but for what is not left of the other GPUs' time.
    A job with a latency target may burst by `burst_ratio` of its ceiling; 0: as it came.
    `weights` are relative: a job that they leave out weighs as its ceiling. The lightest of the
    trainings, and those without a weight, are put into the idle class where they may be.
    """
    owners = owner_rooms(snapshot, starts, ceilings_of)
    shares = _shares(snapshot, limits, starts, weights)
    trainings = (weights.get(job.name, 0.0) for job in snapshot.running if _trains(job))
    heaviest = max(trainings, default=0.0)
    resizes: list[Resize] = []
    for job in snapshot.running:
        wanted = limits.get(job.name)
        if wanted is None or job.container_id is None or job.reason is not None:
            continue  # a reason on a running job names an operation under way
        if moves and job.name in moves:
            continue
        share = shares[job.name]
        burst = _burst(job, wanted, burst_ratio)
        same = same_cores(wanted.cpu_cores, job.actual.cpu_cores)
        idle = _idle(job, weights.get(job.name), heaviest)
        weighs = job.cpu_shares is None or not _shares_differ(job.cpu_shares, share)
        if idle or job.cpu_idle:
            weighs = idle and job.cpu_idle
        bursts = burst is None or same_cores(burst, job.burst_cores)
        paced = same_share(wanted.gpu_share, job.actual.gpu_share)
        if same and weighs and bursts and paced:
            continue
        aside = "its burst follows its ceiling" if weighs else "shares follow the others' limits"
        if idle is not job.cpu_idle:
            aside = "behind the others from now on" if idle else "no longer behind the others"
        resize = Resize(
            job=job.name,
            container_id=job.container_id,
            before=job.actual,
            limits=wanted,
            cpu_shares=share,
            why=why.get(job.name, aside if same else ""),
            burst_cores=burst,
            cpu_idle=idle,
            ceiling_cores=job.spec.bounds.ceiling_cores,
        )
        if reserves and job.cpu_idle and not idle and resize.grows:
            resizes.append(replace(resize, limits=job.actual))  # its weight waits for no room
        resizes += [resize] if same or paced else _one_way(resize)
    resizes.sort(key=lambda resize: (resize.grows, resize.job))
    begins = [
        Start(
            spec=spec,
            limits=replace(
                _first_limits(snapshot, limits, spec, starts, owners, reserves),
                gpu_share=_first_share(snapshot, limits, spec, starts, placements or {}),
            ),
            cpu_shares=shares[spec.name],
            source=(sources or {}).get(spec.name, ""),
            gpus=(placements or {}).get(spec.name, ()),
        )
        for spec in starts
    ]
    if reserves:  # a lift would take room that is promised to others
        removals = [replace(removal, lift=None) for removal in removals]
    goes = _moves(snapshot, limits, moves or {}, shares, sources or {})
    return (*removals, *resizes, *goes, *begins)


def _one_way(resize: Resize) -> list[Resize]:
    """A change of both that gives one and takes the other: what it takes comes before all growth.

    A share is told by itself. One that grows while cores shrink does so in the next cycle.
    """
    before, after = resize.before, resize.limits
    told = replace(resize, limits=replace(before, gpu_share=after.gpu_share))
    if told.grows == resize.grows:
        return [resize]
    if told.grows:
        return [replace(resize, limits=replace(after, gpu_share=before.gpu_share))]
    return [told, replace(resize, before=told.limits)]


def _moves(
    snapshot: Snapshot,
    limits: Mapping[str, Limits],
    moves: Mapping[str, tuple[tuple[str, ...], str]],
    shares: Mapping[str, int],
    sources: Mapping[str, str],
) -> list[Move]:
    made = []
    for job in snapshot.running:
        if job.name not in moves or job.container_id is None or job.spec.checkpoint is None:
            continue
        gpus, why = moves[job.name]
        share = _first_share(snapshot, limits, job.spec, (job.spec,), {job.name: gpus})
        if share is not None and job.actual.gpu_share is not None:
            share = min(share, job.actual.gpu_share)
        start = Start(
            spec=job.spec,
            limits=replace(job.actual, gpu_share=share),
            cpu_shares=shares[job.name],
            source=sources.get(job.name, ""),
            gpus=gpus,
        )
        saved = job.progress.checkpoint is not None and _has_lost_gpu(job, snapshot)
        made.append(Move(job.container_id, start, job.spec.checkpoint, why, saved))
    return made


def _has_lost_gpu(job: JobView, snapshot: Snapshot) -> bool:
    troubled = {gpu.uuid for gpu in snapshot.node.gpus if gpu.fact.trouble is not None}
    return job.gpu_lost is not None or not troubled.isdisjoint(job.gpus)


def ceilings_in_force(snapshot: Snapshot) -> dict[str, float]:
    """By job, the ceilings that the kernel holds or will at once; without one: all of capacity.

    A job whose image is being pulled holds none yet: it starts under limits of that later moment.
    """
    capacity = snapshot.node.capacity_cores
    return {
        job.name: capacity if job.actual.cpu_cores is None else job.actual.cpu_cores
        for job in snapshot.jobs
        if job.state in _HOLDS_CEILING
    }


def owner_rooms(
    snapshot: Snapshot,
    starts: Sequence[JobSpec],
    ceilings_of: Callable[[int | None], OwnerCeilings | None],
) -> dict[int | None, float]:
    """By owner with a ceiling of cores, what its running jobs may have together.

    Room is kept for its containers that do not run yet, and for the floors of its `starts`.
    """
    owners = {job.spec.owner for job in snapshot.jobs} | {spec.owner for spec in starts}
    bounded = {owner: ceilings_of(owner) for owner in owners}
    in_force = ceilings_in_force(snapshot) if any(bounded.values()) else {}
    settled = {job.name for job in snapshot.running} | {spec.name for spec in starts}
    rooms: dict[int | None, float] = {}
    for owner, ceilings in bounded.items():
        if ceilings is None or ceilings.cpu_cores is None:
            continue
        theirs = {job.name for job in snapshot.jobs if job.spec.owner == owner} - settled
        held = sum(in_force.get(name, 0.0) for name in theirs)
        floors = sum(spec.bounds.floor_cores for spec in starts if spec.owner == owner)
        rooms[owner] = max(0.0, ceilings.cpu_cores - held - floors)
    return rooms


def _burst(job: JobView, limits: Limits, ratio: float) -> float | None:
    """What it may use beyond its ceiling once it saved that up; None: whatever it came with."""
    wanted = ratio > 0 and isinstance(job.spec.target, LatencyTarget)
    if not wanted or job.burst_cores is None or limits.cpu_cores is None:
        return None
    return ratio * limits.cpu_cores


def _idle(job: JobView, weight: float | None, heaviest: float) -> bool:
    """Whether it belongs to the idle class, where all are alike."""
    if weight is None or not job.may_idle:
        return False
    return weight <= (_BACK_RATIO if job.cpu_idle else _IDLE_RATIO) * heaviest


def _trains(job: JobView) -> bool:
    """Whether it is a training on CPUs: nobody waits for its next step."""
    return isinstance(job.spec.target, AccuracyTarget) and not job.gpus


def _shares_differ(now: int, wanted: int) -> bool:
    """Whether shares are off by more than is worth a call of their own."""
    return abs(now - wanted) > _SHARES_BAND_RATIO * wanted


def _first_limits(
    snapshot: Snapshot,
    limits: Mapping[str, Limits],
    spec: JobSpec,
    starts: Sequence[JobSpec],
    owners: Mapping[int | None, float],
    reserves: bool,
) -> Limits:
    """What a new container starts under, until the policy sees it run.

    Its ceiling, so that it starts quickly, or an even part of what its owner's other jobs leave of
    their common one; under a policy that reserves, an even part of what the others leave, since the
    sum of ceilings must hold from the first moment on.
    """
    ceiling = spec.bounds.ceiling_cores
    if spec.owner in owners:
        theirs = [job for job in snapshot.running if job.spec.owner == spec.owner]
        given = sum(limits.get(job.name, job.actual).cpu_cores or 0.0 for job in theirs)
        count = sum(each.owner == spec.owner for each in starts)
        part = spec.bounds.floor_cores + max(0.0, owners[spec.owner] - given) / count
        ceiling = part if ceiling is None else min(part, ceiling)
    if not reserves:
        return Limits(ceiling)
    capacity = snapshot.node.capacity_cores
    begun = {each.name for each in starts}
    given = 0.0
    for name, actual in ceilings_in_force(snapshot).items():
        cores = limits[name].cpu_cores if name in limits else actual
        given += 0.0 if name in begun else capacity if cores is None else cores
    part = max(0.0, capacity - given) / len(starts)
    part = part if ceiling is None else min(part, ceiling)
    return Limits(on_grain(part, spec.bounds.floor_cores, snapshot.node.grain_cores))


def _first_share(
    snapshot: Snapshot,
    limits: Mapping[str, Limits],
    spec: JobSpec,
    starts: Sequence[JobSpec],
    placements: Mapping[str, tuple[str, ...]],
) -> float | None:
    """The share of its GPUs' time that a new container starts with; None: they are its alone.

    An even part of what the others leave on the GPU where that is least, but what it is promised.
    """
    gpus, bounds = placements.get(spec.name, ()), spec.bounds
    if not gpus or bounds.floor_share >= 1:
        return None
    share = bounds.ceiling_share
    for uuid in gpus:
        begun = {each.name: each for each in starts_on(uuid, starts, placements)}
        floors = math.fsum(each.bounds.floor_cores for each in begun.values())
        left = 1.0 - floors
        for name, actual in ceilings_in_force(as_node(snapshot, uuid)).items():
            given = limits[name].gpu_share if name in limits else None
            left -= 0.0 if name in begun else actual if given is None else given
        share = min(share, bounds.floor_share + max(0.0, left) / len(begun))
    return in_steps(share, bounds.floor_share)


def _shares(
    snapshot: Snapshot,
    limits: Mapping[str, Limits],
    starts: Sequence[JobSpec],
    decided: Mapping[str, float],
) -> dict[str, int]:
    """CPU shares by ceilings, with the engine's default about as their mean, or by weights.

    With weights the engine's default is the median of the jobs that do not train, so that most of
    them stand beside other containers as they did without dlsched. The scale stays while most
    weights do and it is near: one weight that changes does not change all shares.
    """
    capacity = snapshot.node.capacity_cores
    weights: dict[str, float] = {}
    for job in snapshot.running:
        cores = limits.get(job.name, job.actual).cpu_cores
        weights[job.name] = decided.get(job.name, capacity if cores is None else cores)
    first = [weights[job.name] for job in snapshot.running if not _trains(job)]
    usual = median_high(first) if decided and first else fmean(weights.values() or (0.0,))
    if usual <= 0:
        return {spec.name: DEFAULT_SHARES for spec in starts}
    scale = DEFAULT_SHARES / usual
    scales = [
        job.cpu_shares / weights[job.name]
        for job in snapshot.running
        if job.cpu_shares is not None and weights[job.name] > 0
    ]
    now = median_low(scales) if scales else scale
    same = sum(abs(one - now) <= _SAME_SCALE * now for one in scales)
    if decided and 2 * same > len(scales) and scale / _SCALE_RATIO <= now <= _SCALE_RATIO * scale:
        scale = now
    shares = {
        name: max(_LEAST_SHARES, min(_MOST_SHARES, round(scale * weight)))
        for name, weight in weights.items()
    }
    return {**{spec.name: DEFAULT_SHARES for spec in starts}, **shares}

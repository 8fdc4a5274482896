"""Rules that every decision must satisfy, for one resource: cores, or one GPU's time. In this
order: an equal share for jobs that are not heard from, bounds, owners' ceilings, capacity,
dead-band and cool-down.
No rule prefers one job to another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.control.ceilings import applied_ceilings, owner_rooms
from dlsched.control.gpus.placement import PlacementOptions
from dlsched.model.resource import CPU, Resource
from dlsched.model.spec import JobSpec, OwnerCeilings
from dlsched.model.state import JobView, Snapshot
from dlsched.model.units import exceeds, same_cores
from dlsched.policies.fair_share import fair_shares


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """The operator's settings for all policies' decisions."""

    dead_band_ratio: float = 0.02
    cooldown_s: float = 0.0
    burst_ratio: float = 0.0
    """Fraction of its ceiling that a job with a latency target may save up and use beyond it."""
    ceilings_of: Callable[[int | None], OwnerCeilings | None] = lambda _: None
    """Limits on the sum over one owner's jobs; None: no limit."""
    gpus: PlacementOptions = field(default_factory=PlacementOptions)


def steadied(
    snapshot: Snapshot,
    decided: Mapping[str, float | None],
    options: GuardOptions,
    notes: dict[str, str],
    *,
    reserves: bool,
    heeds_progress: bool,
    starts: Sequence[JobSpec],
) -> dict[str, float | None]:
    """The allowed amount for each running job, not rounded. `notes` gets what changed and why, by
    job. Jobs that are not in `decided` keep their last desired limit. Background jobs need no room
    in the capacity."""
    running = {job.name: job for job in snapshot.running}
    foreground = snapshot.foreground
    first = {job.name: job for job in foreground.running}
    cores: dict[str, float | None] = {}
    shares = _unheard_shares(foreground) if heeds_progress else {}
    floors = {name: _least(job.spec, snapshot) for name, job in running.items()}
    for name, job in running.items():
        wanted = decided.get(name, job.desired.cpu_cores)
        most = snapshot.node.cores
        cores[name] = shares[name] if name in shares else _within_bounds(job, wanted, most)
        # A decision without ceiling gets the spec's ceiling, which is not a change.
        given = name in decided and name not in shares and wanted is not None
        if given and not same_cores(cores[name], wanted):
            becomes = _amount(cores[name], snapshot.resource)
            notes[name] = f"bounds: {_amount(wanted, snapshot.resource)} becomes {becomes}"
    cores = {name: one if one is None else max(one, floors[name]) for name, one in cores.items()}
    owners = [
        (
            owner,
            owners_room,
            {name: job for name, job in running.items() if job.spec.owner == owner},
        )
        for owner, owners_room in owner_rooms(snapshot, starts, options.ceilings_of).items()
    ]
    for owner, owners_room, theirs in owners:
        asked = {name: cores[name] for name in theirs}
        what = f"owner uid {owner}"
        cores |= _fitted(what, owners_room, floors, asked, notes, snapshot.resource)
    room = math.inf
    if reserves:
        room = max(0.0, foreground.node.capacity_cores - _held_cores(foreground, starts))
        asked = {name: cores[name] for name in first}
        cores |= _fitted("capacity", room, floors, asked, notes, snapshot.resource)
    kept = _kept(snapshot, running, cores, options, notes)
    for owner, owners_room, theirs in owners:
        if exceeds(math.fsum(kept[name] or 0.0 for name in theirs), owners_room):
            kept |= _given_up(f"owner uid {owner}", theirs, cores, kept, notes, snapshot.resource)
    theirs_kept = {name: kept[name] for name in first}
    kept |= _beside_kept(room, first, floors, cores, theirs_kept, options, notes, snapshot.resource)
    whole = snapshot.resource.amount(snapshot.node.capacity_cores)
    for name, cores_given in shares.items():
        note = (
            f"{running[name].unheard}: so the job gets an even share by weight, "
            f"{cores_given:.3f} of {whole}"
        )
        notes[name] = f"{note}; {notes[name]}" if name in notes else note
    return kept


def _unheard_shares(snapshot: Snapshot) -> dict[str, float]:
    """Equal shares of jobs that are not heard from: capacity divided by weight, within their
    bounds."""
    running = snapshot.running
    unheard = {job.name for job in running if job.unheard is not None}
    if not unheard:
        return {}
    shares = fair_shares(running, snapshot.node.capacity_cores)
    return {name: cores for name, cores in shares.items() if name in unheard}


def _within_bounds(job: JobView, cores: float | None, most_cores: float) -> float | None:
    """The limit within the job's bounds and the node's cores: the kernel gives no more than
    `most_cores`, and shows no more."""
    floor, ceiling = job.spec.bounds.floor_cores, job.spec.bounds.ceiling_cores
    if cores is None:
        return None if ceiling is None else min(ceiling, most_cores)
    return min(max(floor, cores if ceiling is None else min(cores, ceiling)), most_cores)


def _held_cores(snapshot: Snapshot, starts: Sequence[JobSpec]) -> float:
    """Cores held by containers that do not run yet, plus the floors of `starts`."""
    applied = applied_ceilings(snapshot)
    running = {job.name for job in snapshot.running}
    begun = {spec.name for spec in starts}
    held = sum(cores for name, cores in applied.items() if name not in running | begun)
    return held + sum(_least(spec, snapshot) for spec in starts)


def _least(spec: JobSpec, snapshot: Snapshot) -> float:
    """The job's floor as the engine can keep it; shares of GPU time are kept as they are."""
    if snapshot.resource != CPU:
        return spec.bounds.floor_cores
    return spec.bounds.least_cores(snapshot.node.grain_cores)


def _fitted(
    what: str,
    capacity: float,
    floors: Mapping[str, float],
    cores: Mapping[str, float | None],
    notes: dict[str, str],
    resource: Resource,
) -> dict[str, float | None]:
    """Scale the amounts above the floors so that the sum fits."""
    asked = {name: capacity if value is None else value for name, value in cores.items()}
    total = sum(asked.values())
    if total <= capacity:
        return {**asked}
    floors = {name: min(value, floors[name]) for name, value in asked.items()}
    floor_sum = sum(floors.values())
    ratio = max(0.0, capacity - floor_sum) / (total - floor_sum) if total > floor_sum else 0.0
    fitted: dict[str, float | None] = {}
    for name, value in asked.items():
        fitted[name] = becomes = floors[name] + (value - floors[name]) * ratio
        notes[name] = (
            f"{what}: {value:.3f} becomes {resource.amount(becomes)}, "
            f"all jobs asked for {total:.3f} of {resource.amount(capacity)}"
        )
    return fitted


def _kept(
    snapshot: Snapshot,
    running: Mapping[str, JobView],
    cores: Mapping[str, float | None],
    options: GuardOptions,
    notes: dict[str, str],
) -> dict[str, float | None]:
    """The applied limits where dead-band or cool-down keeps them, else those asked for."""
    kept = dict(cores)
    for name, job in running.items():
        why = _why_kept(snapshot, job, cores[name], options)
        if why is not None:
            kept[name], notes[name] = job.actual.cpu_cores, why
    return kept


def _beside_kept(
    room_cores: float,
    running: Mapping[str, JobView],
    floors: Mapping[str, float],
    cores: Mapping[str, float | None],
    kept: Mapping[str, float | None],
    options: GuardOptions,
    notes: dict[str, str],
    resource: Resource,
) -> dict[str, float | None]:
    """Fit growth into the room beside the kept limits. If that is not enough (a start needs room,
    or capacity shrank), nothing is kept, as a dead-band must not hold a job back forever."""
    if room_cores == math.inf:
        return dict(kept)
    after = {name: value or 0.0 for name, value in kept.items()}
    before = {  # what a new floor adds to a limit does not count as growth to cut
        name: max(job.actual.cpu_cores or 0.0, min(after[name], floors[name]))
        for name, job in running.items()
    }
    excess = math.fsum(after.values()) - room_cores
    if excess <= 1e-9:
        return dict(kept)
    growing = [
        name
        for name, job in running.items()
        if job.actual.cpu_cores is not None and after[name] > before[name]
    ]
    growth = math.fsum(after[name] - before[name] for name in growing)
    if exceeds(excess, growth):
        return _given_up("capacity", running, cores, kept, notes, resource)
    fitted = dict(kept)
    for name in growing:
        step = (after[name] - before[name]) * (1.0 - excess / growth)
        small = step <= options.dead_band_ratio * before[name]
        fitted[name] = becomes = before[name] if small else before[name] + step
        notes[name] = (
            f"capacity: the job gets {resource.amount(becomes)} of the {after[name]:.3f} that the "
            "policy gave it: others keep theirs (dead-band or cool-down), and no more is left"
        )
    return fitted


def _given_up(
    what: str,
    running: Mapping[str, JobView],
    cores: Mapping[str, float | None],
    kept: Mapping[str, float | None],
    notes: dict[str, str],
    resource: Resource,
) -> dict[str, float | None]:
    """The limits asked for, as there is no room to keep the applied ones."""
    for name in running:
        if kept[name] != cores[name]:
            notes[name] = (
                f"{what}: there is no room to keep the limit of {_amount(kept[name], resource)}"
            )
    return {name: cores[name] for name in running}


def _why_kept(
    snapshot: Snapshot, job: JobView, cores: float | None, options: GuardOptions
) -> str | None:
    """Why the applied limit is kept; None: it changes."""
    actual = job.actual.cpu_cores
    if cores is None or actual is None:
        return None
    if same_cores(cores, actual):
        return None
    floor, ceiling = job.spec.bounds.floor_cores, job.spec.bounds.ceiling_cores
    if actual < floor or (ceiling is not None and actual > ceiling):
        return None
    if abs(cores - actual) <= options.dead_band_ratio * actual:
        asked = _amount(cores, snapshot.resource)
        return (
            f"dead-band: no change, {asked} is within {options.dead_band_ratio:.0%} of {actual:.3f}"
        )
    changed_s = math.inf if job.changed_at_s is None else snapshot.now_s - job.changed_at_s
    if changed_s < options.cooldown_s:
        left_s = options.cooldown_s - changed_s
        return (
            f"cool-down: the limit was changed {changed_s:.0f} s ago, no change for another "
            f"{left_s:.0f} s"
        )
    return None


def _amount(value: float | None, resource: Resource) -> str:
    return "no ceiling" if value is None else resource.amount(value)

"""What holds for every policy alike: bounds, capacity, and steadiness.

Owns the guards, in that order. It must not prefer one job to another: that is the policy's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlsched.errors import PolicyError
from dlsched.model import Decision, JobSpec, JobView, Limits, Snapshot
from dlsched.planner import ceilings_in_force
from dlsched.units import same_cores

_MOST = 1e9
"""Nobody means more cores than that, and what is reckoned with them stays finite."""


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """The operator's settings for the guards."""

    dead_band_ratio: float = 0.02
    cooldown_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Guarded:
    """Limits that may be applied, and by job what a guard changed about the policy's."""

    limits: Mapping[str, Limits]
    notes: Mapping[str, str]


def guard(
    snapshot: Snapshot,
    decision: Decision,
    options: GuardOptions,
    *,
    reserves: bool = False,
    starts: Sequence[JobSpec] = (),
) -> Guarded:
    """The decision within bounds, within capacity where the policy reserves, and steady.

    Jobs that the decision leaves out keep what was desired last. Under a policy that reserves, room
    is kept for containers that do not run yet and for `starts`. What no policy may answer is taken
    to be refused already: see `refuse_nonsense`.
    """
    running = {job.name: job for job in snapshot.running}
    notes: dict[str, str] = {}
    cores: dict[str, float | None] = {}
    for name, job in running.items():
        wanted = decision.limits.get(name, job.desired).cpu_cores
        cores[name] = _within_bounds(job, wanted)
        if name in decision.limits and not same_cores(cores[name], wanted):
            notes[name] = f"bounds: {_cores(wanted)} becomes {_cores(cores[name])}"
    room = math.inf
    if reserves:
        room = max(0.0, snapshot.node.capacity_cores - _held_cores(snapshot, starts))
        cores = _within_capacity(room, running, cores, notes)
    kept = _kept(snapshot.now_s, running, cores, options, notes)
    kept = _beside_kept(room, running, cores, kept, options, notes)
    limits: dict[str, Limits] = {}
    for name, job in running.items():
        share = decision.limits.get(name, job.desired).gpu_share
        floor, actual = job.spec.bounds.floor_cores, job.actual.cpu_cores
        stays = same_cores(kept[name], actual)
        rounded = _on_grain(kept[name], floor, snapshot.node.grain_cores)
        limits[name] = Limits(actual if stays else rounded, share)
    return Guarded(limits, notes)


def refuse_nonsense(decision: Decision, names: set[str]) -> None:
    """Raise PolicyError for what no policy may answer: NaN, negative, huge, an unknown job."""
    if not (math.isfinite(decision.next_s) and decision.next_s >= 0):
        raise PolicyError(f"decided next_s {decision.next_s!r}; must be 0 or more seconds")
    for name, reason in decision.why.items():
        if not isinstance(reason, str):
            raise PolicyError(f"gave a reason for {name} that is no text: {reason!r}")
    for name, limits in decision.limits.items():
        if name not in names:
            raise PolicyError(f"decided for a job that does not exist: {name!r}")
        for what, value in (("cpu_cores", limits.cpu_cores), ("gpu_share", limits.gpu_share)):
            if value is not None and not 0 <= value <= _MOST:
                bound = f"must be 0 or more, at most {_MOST:g}"
                raise PolicyError(f"decided {what} {value!r} for {name}; {bound}")


def _within_bounds(job: JobView, cores: float | None) -> float | None:
    floor, ceiling = job.spec.bounds.floor_cores, job.spec.bounds.ceiling_cores
    if cores is None:
        return ceiling
    return max(floor, cores if ceiling is None else min(cores, ceiling))


def _held_cores(snapshot: Snapshot, starts: Sequence[JobSpec]) -> float:
    """What containers that do not run yet, and those about to be made, hold."""
    in_force = ceilings_in_force(snapshot)
    running = {job.name for job in snapshot.running}
    begun = {spec.name for spec in starts}
    held = sum(cores for name, cores in in_force.items() if name not in running | begun)
    return held + sum(spec.bounds.floor_cores for spec in starts)


def _within_capacity(
    capacity: float,
    running: Mapping[str, JobView],
    cores: Mapping[str, float | None],
    notes: dict[str, str],
) -> dict[str, float | None]:
    """Scale what is above the floors so that the sum fits."""
    asked = {name: capacity if value is None else value for name, value in cores.items()}
    total = sum(asked.values())
    if total <= capacity:
        return {**asked}
    floors = {name: min(asked[name], job.spec.bounds.floor_cores) for name, job in running.items()}
    floor_sum = sum(floors.values())
    ratio = max(0.0, capacity - floor_sum) / (total - floor_sum) if total > floor_sum else 0.0
    fitted: dict[str, float | None] = {}
    for name, value in asked.items():
        fitted[name] = floors[name] + (value - floors[name]) * ratio
        notes[name] = (
            f"capacity: {value:.3f} becomes {fitted[name]:.3f} cores, "
            f"all asked for {total:.3f} of {capacity:.3f}"
        )
    return fitted


def _kept(
    now_s: float,
    running: Mapping[str, JobView],
    cores: Mapping[str, float | None],
    options: GuardOptions,
    notes: dict[str, str],
) -> dict[str, float | None]:
    """The limits in force where the dead-band or the cool-down keeps them, else those asked for."""
    kept = dict(cores)
    for name, job in running.items():
        word = _steady(now_s, job, cores[name], options)
        if word is not None:
            kept[name], notes[name] = job.actual.cpu_cores, word
    return kept


def _beside_kept(
    room_cores: float,
    running: Mapping[str, JobView],
    cores: Mapping[str, float | None],
    kept: Mapping[str, float | None],
    options: GuardOptions,
    notes: dict[str, str],
) -> dict[str, float | None]:
    """Fit growth into the room that limits kept in force leave.

    Where that does not do (a start needs room, or capacity shrank), nothing is kept: a dead-band
    must not hold a job back for ever.
    """
    if room_cores == math.inf:
        return dict(kept)
    before = {name: job.actual.cpu_cores or 0.0 for name, job in running.items()}
    after = {name: value or 0.0 for name, value in kept.items()}
    excess = math.fsum(after.values()) - room_cores
    if excess <= 1e-9:
        return dict(kept)
    growing = [
        name
        for name, job in running.items()
        if job.actual.cpu_cores is not None and after[name] > before[name]
    ]
    growth = math.fsum(after[name] - before[name] for name in growing)
    if excess > growth + 1e-9:
        for name in running:
            if kept[name] != cores[name]:
                notes[name] = f"capacity: no room to keep {before[name]:.3f} cores"
        return dict(cores)
    fitted = dict(kept)
    for name in growing:
        step = (after[name] - before[name]) * (1.0 - excess / growth)
        small = step <= options.dead_band_ratio * before[name]
        fitted[name] = before[name] if small else before[name] + step
        notes[name] = (
            f"capacity: {after[name]:.3f} becomes {fitted[name]:.3f} cores, "
            "others keep theirs within the dead-band"
        )
    return fitted


def _steady(now_s: float, job: JobView, cores: float | None, options: GuardOptions) -> str | None:
    """Why the limit in force is kept, or None."""
    actual = job.actual.cpu_cores
    if cores is None or actual is None:
        return None
    if same_cores(cores, actual):
        return None
    floor, ceiling = job.spec.bounds.floor_cores, job.spec.bounds.ceiling_cores
    if actual < floor or (ceiling is not None and actual > ceiling):
        return None
    if abs(cores - actual) <= options.dead_band_ratio * actual:
        return f"dead-band: {_cores(cores)} is within {options.dead_band_ratio:.0%} of {actual:.3f}"
    if job.changed_at_s is not None and now_s - job.changed_at_s < options.cooldown_s:
        left_s = options.cooldown_s - (now_s - job.changed_at_s)
        return f"cool-down: changed lately, {left_s:.0f} s left"
    return None


def _on_grain(cores: float | None, floor_cores: float, grain_cores: float) -> float | None:
    """What the engine would keep of it: rounded down, so that sums still hold, but to the floor."""
    if cores is None:
        return None
    steps = math.floor(cores / grain_cores + 1e-6)
    least = math.ceil(floor_cores / grain_cores - 1e-6)
    return round(max(steps, least, 1) * grain_cores, 6)


def _cores(value: float | None) -> str:
    return "no ceiling" if value is None else f"{value:.3f} cores"

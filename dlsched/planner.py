"""From a decision to ordered actions: the guards that hold for every policy, then the difference.

Owns bounds, capacity, dead-band, cool-down, CPU shares and the order of actions. It must not
prefer one job to another: that is the policy's. Shrinks come before what grows, so that the sum of
ceilings stays within capacity also between two actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlsched.errors import PolicyError
from dlsched.model import (
    Action,
    Decision,
    JobSpec,
    JobState,
    JobView,
    Limits,
    Remove,
    Resize,
    Snapshot,
    Start,
)

DEFAULT_SHARES = 1024
"""The engine's weight of a container that asks for none."""

_LEAST_SHARES, _MOST_SHARES = 2, 262144
_SHARES_BAND_RATIO = 0.25
"""Shares follow a changed limit at once, and otherwise only when they are off by so much."""


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
        if name in decision.limits and not _equal(cores[name], wanted):
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
        stays = _equal(kept[name], actual)
        rounded = _on_grain(kept[name], floor, snapshot.node.grain_cores)
        limits[name] = Limits(actual if stays else rounded, share)
    return Guarded(limits, notes)


def plan(
    snapshot: Snapshot,
    limits: Mapping[str, Limits],
    why: Mapping[str, str],
    starts: Sequence[JobSpec] = (),
    removals: Sequence[Remove] = (),
    *,
    reserves: bool = False,
    sources: Mapping[str, str] | None = None,
) -> tuple[Action, ...]:
    """What has to be done, in order: removals, shrinks, growths, starts."""
    shares = _shares(snapshot, limits, starts)
    resizes: list[Resize] = []
    for job in snapshot.running:
        wanted = limits.get(job.name)
        if wanted is None or job.container_id is None or job.reason is not None:
            continue  # a reason on a running job names an operation under way
        share = shares[job.name]
        same = _equal(wanted.cpu_cores, job.actual.cpu_cores)
        if same and (job.cpu_shares is None or not _shares_differ(job.cpu_shares, share)):
            continue
        resizes.append(
            Resize(
                job=job.name,
                container_id=job.container_id,
                before=job.actual,
                limits=wanted,
                cpu_shares=share,
                why=why.get(job.name, "shares follow the others' limits" if same else ""),
            )
        )
    resizes.sort(key=lambda resize: (resize.grows, resize.job))
    begins = [
        Start(
            spec=spec,
            limits=_first_limits(snapshot, limits, spec, starts, reserves),
            cpu_shares=shares[spec.name],
            source=(sources or {}).get(spec.name, ""),
        )
        for spec in starts
    ]
    if reserves:  # a lift would take room that is promised to others
        removals = [replace(removal, lift=None) for removal in removals]
    return (*removals, *resizes, *begins)


def ceilings_in_force(snapshot: Snapshot) -> dict[str, float]:
    """By job, the ceilings that the kernel holds or will at once; without one: all of capacity.

    A job whose image is being pulled holds none yet: it starts under limits of that later moment.
    """
    capacity = snapshot.node.capacity_cores
    return {
        job.name: capacity if job.actual.cpu_cores is None else job.actual.cpu_cores
        for job in snapshot.jobs
        if job.state.holds and job.state is not JobState.PULLING
    }


def may_grow(
    action: Action, actual: Mapping[str, float], capacity_cores: float
) -> tuple[bool, float]:
    """Whether a growing action fits beside what is in force now, and the sum it would give.

    `actual` are the ceilings that the kernel holds, by job. A failed shrink is still in there, so
    the growth that counted on it is withheld.
    """
    if isinstance(action, Remove):
        return True, sum(actual.values())
    new = action.limits.cpu_cores
    if new is None:
        return False, math.inf
    others = sum(cores for name, cores in actual.items() if name != action.job)
    return others + new <= capacity_cores + 1e-6, others + new


def _shares_differ(now: int, wanted: int) -> bool:
    """Whether shares are off by more than is worth a call of their own."""
    return abs(now - wanted) > _SHARES_BAND_RATIO * wanted


# ---------------------------------------------------------------------- guards


def refuse_nonsense(decision: Decision, names: set[str]) -> None:
    """Raise PolicyError for what no policy may answer: NaN, negative, an unknown job."""
    if not (math.isfinite(decision.next_s) and decision.next_s >= 0):
        raise PolicyError(f"decided next_s {decision.next_s!r}; must be 0 or more seconds")
    for name, limits in decision.limits.items():
        if name not in names:
            raise PolicyError(f"decided for a job that does not exist: {name!r}")
        for what, value in (("cpu_cores", limits.cpu_cores), ("gpu_share", limits.gpu_share)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise PolicyError(f"decided {what} {value!r} for {name}; must be 0 or more")


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
            f"capacity: {value:.2f} becomes {fitted[name]:.2f} cores, "
            f"all asked for {total:.2f} of {capacity:.2f}"
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
                notes[name] = f"capacity: no room to keep {before[name]:.2f} cores"
        return dict(cores)
    fitted = dict(kept)
    for name in growing:
        step = (after[name] - before[name]) * (1.0 - excess / growth)
        small = step <= options.dead_band_ratio * before[name]
        fitted[name] = before[name] if small else before[name] + step
        notes[name] = (
            f"capacity: {after[name]:.2f} becomes {fitted[name]:.2f} cores, "
            "others keep theirs within the dead-band"
        )
    return fitted


def _steady(now_s: float, job: JobView, cores: float | None, options: GuardOptions) -> str | None:
    """Why the limit in force is kept, or None."""
    actual = job.actual.cpu_cores
    if cores is None or actual is None:
        return None
    if _equal(cores, actual):
        return None
    floor, ceiling = job.spec.bounds.floor_cores, job.spec.bounds.ceiling_cores
    if actual < floor or (ceiling is not None and actual > ceiling):
        return None
    if abs(cores - actual) <= options.dead_band_ratio * actual:
        return f"dead-band: {_cores(cores)} is within {options.dead_band_ratio:.0%} of {actual:.2f}"
    if job.changed_at_s is not None and now_s - job.changed_at_s < options.cooldown_s:
        left_s = options.cooldown_s - (now_s - job.changed_at_s)
        return f"cool-down: changed lately, {left_s:.0f} s left"
    return None


# ---------------------------------------------------------------------- the plan


def _first_limits(
    snapshot: Snapshot,
    limits: Mapping[str, Limits],
    spec: JobSpec,
    starts: Sequence[JobSpec],
    reserves: bool,
) -> Limits:
    """What a new container starts under, until the policy sees it run.

    Its ceiling, so that it starts quickly; under a policy that reserves, an even part of what the
    others leave, since the sum of ceilings must hold from the first moment on.
    """
    ceiling = spec.bounds.ceiling_cores
    if not reserves:
        return Limits(ceiling)
    capacity = snapshot.node.capacity_cores
    begun = {each.name for each in starts}
    given = 0.0
    for name, actual in ceilings_in_force(snapshot).items():
        cores = limits[name].cpu_cores if name in limits else actual
        given += 0.0 if name in begun else capacity if cores is None else cores
    part = max(0.0, capacity - given) / len(starts)
    return Limits(max(spec.bounds.floor_cores, part if ceiling is None else min(part, ceiling)))


def _shares(
    snapshot: Snapshot, limits: Mapping[str, Limits], starts: Sequence[JobSpec]
) -> dict[str, int]:
    """CPU shares in proportion to ceilings, with the engine's default as their mean."""
    capacity = snapshot.node.capacity_cores
    ceilings: dict[str, float] = {}
    for job in snapshot.running:
        cores = limits.get(job.name, job.actual).cpu_cores
        ceilings[job.name] = capacity if cores is None else cores
    mean = sum(ceilings.values()) / len(ceilings) if ceilings else 0.0
    shares = {
        name: max(_LEAST_SHARES, min(_MOST_SHARES, round(DEFAULT_SHARES * cores / mean)))
        for name, cores in ceilings.items()
        if mean > 0
    }
    return {**{spec.name: DEFAULT_SHARES for spec in starts}, **shares}


def _equal(a: float | None, b: float | None) -> bool:
    """Equal but for rounding: a quota is kept in microseconds of a 100 ms period."""
    if a is None or b is None:
        return a is None and b is None
    return abs(a - b) < 1e-4


def _on_grain(cores: float | None, floor_cores: float, grain_cores: float) -> float | None:
    """What the engine would keep of it: rounded down, so that sums still hold, but to the floor."""
    if cores is None:
        return None
    steps = math.floor(cores / grain_cores + 1e-6)
    least = math.ceil(floor_cores / grain_cores - 1e-6)
    return round(max(steps, least, 1) * grain_cores, 6)


def _cores(value: float | None) -> str:
    return "no ceiling" if value is None else f"{value:.2f} cores"

"""Divides cores among trainings, for the policy `adaptive`: first where the next tier is cheapest.

`model` reads the reports of trainings, `value` computes the marginal value of a core-second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dlsched.estimate.tuning import AHEAD, FINE, FULL_RATIO, LITTLE, MARGIN, MOSTLY, SAMPLE_WEIGHT
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import Bounds
from dlsched.model.state import JobView, Snapshot
from dlsched.model.units import same_cores
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.adaptive.trainings.forecast import outlooks
from dlsched.policies.adaptive.trainings.model import TrainingMemory, fitted, followed
from dlsched.policies.adaptive.trainings.value import MarginalValue, TypicalWork, marginal_value

__all__ = ["TrainingMemory", "place"]

_OUTLOOK_S, _OUTLOOK_JOB_S = 5.0, 0.05
"""Period of the forecasts: the first, or the second for each job if that is longer."""
_LEAST_WEIGHT = 1e-3
_UNASKED_CORES = Bounds().floor_cores
"""The default floor, only enough to stay alive: it promises nothing."""
_STEEPNESS = 3.0
"""The last core given weighs up to exp(this) times less than the first, if it brings less."""
_START_CORES = 1.0
"""Parallelism assumed before the first report, unless the job uses or asks for more: it is loading,
usually on one thread."""
_SPARE_RATIO = 0.7
"""A training is held to its floor if those before it could use, beyond what they are given, this
fraction of the capacity. They leave a fifth of it idle, where their threads wait for each other, of
which one behind them gets at most half."""
_TURN_CORE_S = 5.0
"""Length of a turn in the round robin among new trainings; without it they switch every second."""


def place(
    jobs: Sequence[JobView],
    snapshot: Snapshot,
    known: Sequence[TrainingMemory],
    capacity_cores: float,
    rule: AdaptiveParameters,
) -> Placed[TrainingMemory]:
    """Divides `capacity_cores` among these jobs, ordered by the marginal value of a core-second."""
    now_s = snapshot.now_s
    before = {one.name: one for one in known}
    pressed = _pressed(snapshot)
    memories = {job.name: followed(job, before.get(job.name), now_s, pressed) for job in jobs}
    _fit(jobs, memories, rule)
    typical = TypicalWork.of(jobs, memories, rule)
    resource = snapshot.resource
    values = {
        job.name: marginal_value(job, memories[job.name], now_s, rule, typical, resource)
        for job in jobs
    }
    widths = {job.name: _width(job, memories[job.name], capacity_cores) for job in jobs}
    floors = {job.name: min(job.spec.bounds.floor_cores, widths[job.name]) for job in jobs}
    order = _order(jobs, memories, values, widths, capacity_cores, rule)
    given = _given(order, floors, widths, values, capacity_cores, rule)
    promised = {job.name for job in jobs if job.spec.bounds.promised}
    weights = _weights(order, given, floors, promised, values, capacity_cores)
    forecasts = {name: memory.outlooks for name, memory in memories.items()}
    renew = any(_stale(job, memories[job.name], now_s, len(jobs)) for job in jobs)
    if renew:
        forecasts = outlooks(
            jobs, order, memories, values, given, now_s, capacity_cores, rule, resource
        )
    why = {}
    for name, cores in given.items():
        memory, one = memories[name], values[name]
        why[name] = f"{one.why}; it gets {resource.amount(cores, '.2f')}"
        first = name == order[0] or cores > MOSTLY * widths[name]
        known_as = (memory.given_cores, memory.first, memory.late)
        if renew or known_as != (cores, first, one.risks_deadline):
            memories[name] = replace(
                memory,
                given_cores=cores,
                first=first,
                late=one.risks_deadline,
                outlooks=forecasts[name],
                told_s=now_s if renew else memory.told_s,
            )
    held = _held(jobs, order, given, floors, widths, capacity_cores)
    there = {job.name for job in snapshot.jobs}
    resting = [one for one in known if one.name in there and one.name not in memories]
    return Placed(
        limits={
            job.name: floors[job.name] if job.name in held else job.spec.bounds.ceiling_cores
            for job in jobs
        },
        uses=given,
        weights=weights,
        why=why,
        outlooks=forecasts,
        memory=(*memories.values(), *resting),
    )


def _pressed(snapshot: Snapshot) -> bool:
    """Whether foreign load fills the host: a training's use then understates its parallelism."""
    node = snapshot.node
    foreign_cores = node.foreign_cores or 0.0
    used_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.running)
    full = used_cores + foreign_cores > FULL_RATIO * node.cores
    return full and foreign_cores > LITTLE * node.cores


def _stale(job: JobView, memory: TrainingMemory, now_s: float, jobs: int) -> bool:
    """Whether the job's forecast is older than its period, or sooner if a tier was reached."""
    if memory.told_s is None:
        return True
    age_s, period_s = now_s - memory.told_s, max(_OUTLOOK_S, jobs * _OUTLOOK_JOB_S)
    met = sum(one.kind is ForecastKind.MET for one in memory.outlooks)
    turned = met != sum(one is not None for one in (job.tiers.delivered, job.tiers.finished))
    return age_s >= (SAMPLE_WEIGHT * period_s if turned else period_s)


def _fit(
    jobs: Sequence[JobView], memories: dict[str, TrainingMemory], rule: AdaptiveParameters
) -> None:
    """Fits the curves with new evaluations, at most `fits_most`, the longest waiting first."""
    due = [
        (due_s, job.name, job) for job in jobs if (due_s := memories[job.name].due_s) is not None
    ]
    for _, name, job in sorted(due)[: rule.fits_most]:
        memories[name] = fitted(job, memories[name], rule)


def _width(job: JobView, memory: TrainingMemory, capacity_cores: float) -> float:
    """The job's parallelism in cores: all that it may use, unless it was measured to use less."""
    bounds, used_cores, start_cores = job.spec.bounds, job.usage.cpu_cores, None
    if memory.read_s is None and used_cores is not None:
        start_cores = max(_START_CORES, MARGIN * used_cores, bounds.floor_cores)
    most = (memory.usable_cores, start_cores, bounds.ceiling_cores, capacity_cores)
    return min(one for one in most if one is not None)


def _order(
    jobs: Sequence[JobView],
    memories: Mapping[str, TrainingMemory],
    values: Mapping[str, MarginalValue],
    widths: Mapping[str, float],
    capacity_cores: float,
    rule: AdaptiveParameters,
) -> list[str]:
    """The names in order: deadlines at risk, longest paths, then marginal value (hysteresis)."""
    whole_core_s = _whole_core_s(values.values())
    longest_s = rule.guard_ratio * whole_core_s / max(capacity_cores, 1e-9)

    def rank(job: JobView) -> tuple[float, float, str]:
        one, memory = values[job.name], memories[job.name]
        path_s = one.end_core_s / max(widths[job.name], 1e-9)
        if one.risks_deadline:
            return (0.0, -one.index, job.name)
        # A training that can use all cores fills whatever is left, so it never runs alone.
        narrow = widths[job.name] < FULL_RATIO * capacity_cores
        open_ended = one.tiers_done < 2 or not rule.tiers_first
        if rule.guard_ratio and one.known and narrow and open_ended and path_s > longest_s:
            return (1.0, -path_s, job.name)
        place = float(one.tiers_done) if rule.tiers_first else 0.0
        return (2.0 + place, -one.index * (MARGIN if memory.first else 1.0), job.name)

    return [job.name for job in sorted(jobs, key=rank)]


def _whole_core_s(values: Collection[MarginalValue]) -> float:
    """Remaining work of all; one that cannot be ranked is assumed to have the average work."""
    known = [one for one in values if one.known]
    whole = math.fsum(one.end_core_s for one in known)
    if not known:
        return math.fsum(one.end_core_s for one in values)
    mean = math.fsum(one.end_core_s + one.attained_core_s for one in known) / len(known)
    return whole + math.fsum(
        max(one.end_core_s, mean - one.attained_core_s) for one in values if not one.known
    )


def _given(
    order: Sequence[str],
    floors: Mapping[str, float],
    widths: Mapping[str, float],
    values: Mapping[str, MarginalValue],
    capacity_cores: float,
    rule: AdaptiveParameters,
) -> dict[str, float]:
    """Cores by job: floors, then exploration by least attained service, then the rest in order."""
    unknown = sorted(
        (name for name in order if not values[name].known and not values[name].silent),
        key=lambda name: (values[name].attained_core_s // _TURN_CORE_S, name),
    )
    given = {name: floors[name] for name in order}
    left = max(capacity_cores - math.fsum(given.values()), 0.0)
    room = min(rule.explore_ratio * capacity_cores, left)
    for name in unknown:
        more = min(room, widths[name] - given[name])
        given[name] += more
        room -= more
        left -= more
    for name in order:
        more = min(left, widths[name] - given[name])
        given[name] += more
        left -= more
    return given


def _held(
    jobs: Sequence[JobView],
    order: Sequence[str],
    given: Mapping[str, float],
    floors: Mapping[str, float],
    widths: Mapping[str, float],
    capacity_cores: float,
) -> frozenset[str]:
    """The trainings whose ceiling is their floor. All weigh the same in the kernel's idle class:
    without this, the others would share equally what the first ones leave idle."""
    idle = {job.name: job for job in jobs if job.may_idle}
    spare, held = _SPARE_RATIO * capacity_cores, set()
    for name in order:
        if given[name] <= floors[name] and name in idle:
            was = same_cores(idle[name].actual.cpu_cores, floors[name])
            if spare <= ((MARGIN - 1.0) * capacity_cores if was else 0.0):
                held.add(name)
        spare -= widths[name] - given[name]
    return frozenset(held)


def _weights(
    order: Sequence[str],
    given: Mapping[str, float],
    floors: Mapping[str, float],
    promised: Collection[str],
    values: Mapping[str, MarginalValue],
    capacity_cores: float,
) -> dict[str, float]:
    """Weights by the cores given: lower per core further down the order and for less value.

    The first outweighs all others, so that it can use more than its known parallelism and thereby
    show it. Each training that gets nothing weighs little against the one before it and only takes
    idle CPU. One with a promised floor has that fraction of all weights at any place in the order.
    """
    weights, following, before = {}, FINE * capacity_cores, 0.0
    for name in order:
        if name == order[0]:
            weight = AHEAD * given[name]
        elif given[name] > floors[name]:
            # Exploration is not slowed down by the trainings before it in order.
            behind = min(before / capacity_cores, 1.0) if values[name].known else 0.0
            # Nor is one of nearly the first's value: their order may well be wrong.
            behind *= 1.0 - min(values[name].index / values[order[0]].index, 1.0)
            weight = MARGIN * given[name] * math.exp(-_STEEPNESS * behind)
        else:
            weight = following
            following *= FINE
        weights[name] = max(weight, min(floors[name], _UNASKED_CORES), _LEAST_WEIGHT)
        before += given[name]
    asked = {name: floors[name] for name in order[1:] if name in promised and floors[name] > 0.0}
    others = math.fsum(weight for name, weight in weights.items() if name not in asked)
    free_cores = max(capacity_cores - math.fsum(asked.values()), LITTLE * capacity_cores)
    for name, floor in asked.items():
        weights[name] = max(weights[name], others * floor / free_cores)
    return weights

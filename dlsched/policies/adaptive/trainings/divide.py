"""Trainings, for the policy `adaptive`: cores go where the next tier is cheapest.

Owns the division of cores among trainings. It must not read reports (`model`),
nor compute what a training is worth (`value`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dlsched.estimate.tuning import AHEAD, FINE, FULL_RATIO, LITTLE, LOOK_WEIGHT, MARGIN, MOSTLY
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import Bounds
from dlsched.model.state import JobView, Snapshot
from dlsched.model.units import same_cores
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.adaptive.trainings.forecast import outlooks
from dlsched.policies.adaptive.trainings.model import TrainingMemory, fitted, followed
from dlsched.policies.adaptive.trainings.value import Usual, Worth, worth

__all__ = ["TrainingMemory", "place"]

_OUTLOOK_S, _OUTLOOK_JOB_S = 5.0, 0.05
"""Outlooks are made anew so often, or where jobs are many, once in so long for each of them."""
_LEAST_WEIGHT = 1e-3
_UNASKED_CORES = Bounds().floor_cores
"""Whoever asks for no floor has this one, and no promise of more than to live."""
_STEEPNESS = 3.0
"""A core given last weighs less than one given first by the exponential of this, at most: as far as
it brings less."""
_START_CORES = 1.0
"""What a training can use before it has told anything, unless it uses more or asks for more: it
loads, on one thread as a rule."""
_SPARE_RATIO = 0.7
"""Whoever comes behind those who could use this part of the capacity, beside what is given, is held
to its floor. Those who come first leave a fifth idle, where their threads wait for each other, but
one behind them gets at no more than half of that."""
_TURN_CORE_S = 5.0
"""Newcomers of whom nothing is known take turns of so much: else they would every second."""


def place(
    jobs: Sequence[JobView],
    snapshot: Snapshot,
    known: Sequence[TrainingMemory],
    capacity_cores: float,
    rule: AdaptiveParameters,
) -> Placed[TrainingMemory]:
    """Cores to these jobs, in the order of what a core-second brings to their targets."""
    now_s = snapshot.now_s
    before = {one.name: one for one in known}
    pressed = _pressed(snapshot)
    memories = {job.name: followed(job, before.get(job.name), now_s, pressed) for job in jobs}
    _fit(jobs, memories, rule)
    usual = Usual.of(jobs, memories, rule)
    resource = snapshot.resource
    worths = {
        job.name: worth(job, memories[job.name], now_s, rule, usual, resource) for job in jobs
    }
    wides = {job.name: _wide(job, memories[job.name], capacity_cores) for job in jobs}
    floors = {job.name: min(job.spec.bounds.floor_cores, wides[job.name]) for job in jobs}
    order = _order(jobs, memories, worths, wides, capacity_cores, rule)
    given = _given(order, floors, wides, worths, capacity_cores, rule)
    promised = {job.name for job in jobs if job.spec.bounds.promised}
    weights = _weights(order, given, floors, promised, worths, capacity_cores)
    told = {name: memory.outlooks for name, memory in memories.items()}
    anew = any(_stale(job, memories[job.name], now_s, len(jobs)) for job in jobs)
    if anew:
        told = outlooks(jobs, order, memories, worths, given, now_s, capacity_cores, rule, resource)
    why = {}
    for name, cores in given.items():
        memory, one = memories[name], worths[name]
        why[name] = f"{one.why}: {resource.amount(cores, '.2f')}"
        first = name == order[0] or cores > MOSTLY * wides[name]
        known_as = (memory.given_cores, memory.first, memory.late)
        if anew or known_as != (cores, first, one.risks_deadline):
            memories[name] = replace(
                memory,
                given_cores=cores,
                first=first,
                late=one.risks_deadline,
                outlooks=told[name],
                told_s=now_s if anew else memory.told_s,
            )
    held = _held(jobs, order, given, floors, wides, capacity_cores)
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
        outlooks=told,
        memory=(*memories.values(), *resting),
    )


def _pressed(snapshot: Snapshot) -> bool:
    """Whether others on the host take CPU that a training would use, so that its use says less."""
    node = snapshot.node
    foreign_cores = node.foreign_cores or 0.0
    used_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.running)
    full = used_cores + foreign_cores > FULL_RATIO * node.cores
    return full and foreign_cores > LITTLE * node.cores


def _stale(job: JobView, memory: TrainingMemory, now_s: float, jobs: int) -> bool:
    """Whether what was told of that job no longer holds, or is old."""
    if memory.told_s is None:
        return True
    age_s, period_s = now_s - memory.told_s, max(_OUTLOOK_S, jobs * _OUTLOOK_JOB_S)
    met = sum(one.kind is ForecastKind.MET for one in memory.outlooks)
    turned = met != sum(one is not None for one in (job.tiers.delivered, job.tiers.finished))
    return age_s >= (LOOK_WEIGHT * period_s if turned else period_s)


def _fit(
    jobs: Sequence[JobView], memories: dict[str, TrainingMemory], rule: AdaptiveParameters
) -> None:
    """The curves with news are fitted again, at most so many, those that wait longest first."""
    due = [
        (due_s, job.name, job) for job in jobs if (due_s := memories[job.name].due_s) is not None
    ]
    for _, name, job in sorted(due)[: rule.fits_most]:
        memories[name] = fitted(job, memories[name], rule)


def _wide(job: JobView, memory: TrainingMemory, capacity_cores: float) -> float:
    """How many cores it can use at once: all that it may, unless it was seen to use less."""
    bounds, used_cores, start_cores = job.spec.bounds, job.usage.cpu_cores, None
    if memory.read_s is None and used_cores is not None:
        start_cores = max(_START_CORES, MARGIN * used_cores, bounds.floor_cores)
    most = (memory.usable_cores, start_cores, bounds.ceiling_cores, capacity_cores)
    return min(one for one in most if one is not None)


def _order(
    jobs: Sequence[JobView],
    memories: Mapping[str, TrainingMemory],
    worths: Mapping[str, Worth],
    wides: Mapping[str, float],
    capacity_cores: float,
    rule: AdaptiveParameters,
) -> list[str]:
    """The most urgent first: risky deadlines, long ones, then what a core-second brings most."""
    whole_core_s = _whole_core_s(worths.values())
    longest_s = rule.guard_ratio * whole_core_s / max(capacity_cores, 1e-9)

    def rank(job: JobView) -> tuple[float, float, str]:
        one, memory = worths[job.name], memories[job.name]
        path_s = one.end_core_s / max(wides[job.name], 1e-9)
        if one.risks_deadline:
            return (0.0, -one.index, job.name)
        # Who can use all cores is never left over: whatever comes before, it fills the rest.
        narrow = wides[job.name] < FULL_RATIO * capacity_cores
        open_ended = one.tiers_done < 2 or not rule.tiers_first
        if rule.guard_ratio and one.known and narrow and open_ended and path_s > longest_s:
            return (1.0, -path_s, job.name)
        place = float(one.tiers_done) if rule.tiers_first else 0.0
        return (2.0 + place, -one.index * (MARGIN if memory.first else 1.0), job.name)

    return [job.name for job in sorted(jobs, key=rank)]


def _whole_core_s(worths: Collection[Worth]) -> float:
    """Work left in all; of who is not known yet, as much as the known ones have in the mean."""
    known = [one for one in worths if one.known]
    whole = math.fsum(one.end_core_s for one in known)
    if not known:
        return math.fsum(one.end_core_s for one in worths)
    mean = math.fsum(one.end_core_s + one.attained_core_s for one in known) / len(known)
    return whole + math.fsum(
        max(one.end_core_s, mean - one.attained_core_s) for one in worths if not one.known
    )


def _given(
    order: Sequence[str],
    floors: Mapping[str, float],
    wides: Mapping[str, float],
    worths: Mapping[str, Worth],
    capacity_cores: float,
    rule: AdaptiveParameters,
) -> dict[str, float]:
    """Floors; a part for those not known yet, by least service first; the rest in order."""
    unknown = sorted(
        (name for name in order if not worths[name].known and not worths[name].silent),
        key=lambda name: (worths[name].attained_core_s // _TURN_CORE_S, name),
    )
    given = {name: floors[name] for name in order}
    left = max(capacity_cores - math.fsum(given.values()), 0.0)
    room = min(rule.explore_ratio * capacity_cores, left)
    for name in unknown:
        more = min(room, wides[name] - given[name])
        given[name] += more
        room -= more
        left -= more
    for name in order:
        more = min(left, wides[name] - given[name])
        given[name] += more
        left -= more
    return given


def _held(
    jobs: Sequence[JobView],
    order: Sequence[str],
    given: Mapping[str, float],
    floors: Mapping[str, float],
    wides: Mapping[str, float],
    capacity_cores: float,
) -> frozenset[str]:
    """Who is held to its floor: in the kernel's idle class all weigh the same, and without it what
    the first ones leave idle would go to all behind them alike."""
    idle = {job.name: job for job in jobs if job.may_idle}
    spare, held = _SPARE_RATIO * capacity_cores, set()
    for name in order:
        if given[name] <= floors[name] and name in idle:
            was = same_cores(idle[name].actual.cpu_cores, floors[name])
            if spare <= ((MARGIN - 1.0) * capacity_cores if was else 0.0):
                held.add(name)
        spare -= wides[name] - given[name]
    return frozenset(held)


def _weights(
    order: Sequence[str],
    given: Mapping[str, float],
    floors: Mapping[str, float],
    promised: Collection[str],
    worths: Mapping[str, Worth],
    capacity_cores: float,
) -> dict[str, float]:
    """What is given, the less per core the further behind in order and the less it is worth beside
    the first; who is first outweighs all others, may take more than it was known to be able to use,
    and so shows that it can.

    Of those for whom nothing is left each weighs little against the one before: it takes what stays
    idle, and no more. Whoever asks for a floor has that part of all weights, wherever it stands.
    """
    weights, following, before = {}, FINE * capacity_cores, 0.0
    for name in order:
        if name == order[0]:
            weight = AHEAD * given[name]
        elif given[name] > floors[name]:
            # Who is still to become known is not put back further by those before it.
            behind = min(before / capacity_cores, 1.0) if worths[name].known else 0.0
            # Nor who is worth nearly as much as the first: that order may well be wrong.
            behind *= 1.0 - min(worths[name].index / worths[order[0]].index, 1.0)
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

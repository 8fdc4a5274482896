"""Divides cores among trainings, for the policy `adaptive`: first where the next tier is cheapest.

`model` reads the reports of trainings, `value` computes the marginal value of a core-second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dlsched.estimate.tuning import (
    AHEAD,
    CLEARLY,
    FINE,
    FULL_RATIO,
    LITTLE,
    MARGIN,
    SAMPLE_WEIGHT,
)
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import Bounds
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.adaptive.trainings.forecast import outlooks
from dlsched.policies.adaptive.trainings.model import NEW, TrainingMemory, fitted, followed, stalled
from dlsched.policies.adaptive.trainings.patience import due_in_s, gone, pressing, shared_equally
from dlsched.policies.adaptive.trainings.value import MarginalValue, TypicalWork, marginal_value
from dlsched.policies.fair_share import Claim, water_fill

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
_TURN_S = 30.0
"""Time between two changes of the order by value."""
_WATCHED_S = 20.0
"""A new training is watched for so long, whether it stalls: most loaders and evaluations do by
then. Of 40 drawn worlds with stalls 8 had a harmed training with it and 10 without, at 2 updates a
minute instead of 8."""
_UNSURE_RATIO = 0.2
"""Of 47 drawn worlds with stalls in which an order harmed a training, it was by at most this part
in 31. Owners with that patience have the order: ends are earlier on average."""
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
    memories = stalled(jobs, memories, now_s)
    _fit(jobs, memories, rule)
    typical = TypicalWork.of(jobs, memories, rule)
    resource = snapshot.resource
    values = {
        job.name: marginal_value(job, memories[job.name], now_s, rule, typical, resource)
        for job in jobs
    }
    widths = {job.name: _width(job, memories[job.name], capacity_cores) for job in jobs}
    floors = {job.name: min(job.spec.bounds.floor_cores, widths[job.name]) for job in jobs}
    heard = [job for job in jobs if not values[job.name].silent]
    unsteady = _unsteady(heard, memories, now_s, rule)
    even = {job.name for job in heard} if unsteady else set()
    turn = _is_turn(memories, values, now_s) or any(
        not (memories[name].presses or memories[name].late) for name in even
    )
    equal = {name for name, one in memories.items() if one.presses}
    order = sorted(memories, key=lambda name: (memories[name].place, name))
    there = {job.name for job in snapshot.jobs}
    others = [one if one.name in there else gone(one) for one in known if one.name not in memories]
    if turn:
        shared = shared_equally([*memories.values(), *others], values, capacity_cores, now_s)
        memories = {name: shared[name] for name in memories}
        others = [shared[one.name] for one in others]
        due_s = {
            job.name: due_in_s(memories[job.name], job.started_at_s or now_s, now_s, rule.patience)
            for job in jobs
            if values[job.name].known
        }
        groups = pressing(values, due_s, widths, capacity_cores, _TURN_S)
        # One whose end is not known yet keeps up with equal shares instead.
        groups |= {
            name: 0
            for name, one in memories.items()
            if name not in due_s and values[name].attained_core_s < one.fair_core_s
        }
        groups |= dict.fromkeys(even, 0)
        order = _order(order, memories, values, groups, rule)
        first = {name for name, group in groups.items() if group == 0}
        at_risk = {name for name, one in values.items() if one.risks_deadline}
        equal = set() if rule.tiers_first else first - at_risk
    blocks = _blocks(order, equal)
    own = {job.name: job.spec.weight for job in jobs}
    given = _given(blocks, own, floors, widths, values, capacity_cores, rule)
    promised = {job.name for job in jobs if job.spec.bounds.promised}
    weights = {name: one.weight for name, one in memories.items()}
    if turn:
        weights = _weights(blocks, own, given, floors, promised, values, capacity_cores)
    forecasts = {name: memory.outlooks for name, memory in memories.items()}
    renew = any(_stale(job, memories[job.name], now_s, len(jobs)) for job in jobs)
    if renew:
        forecasts = outlooks(
            jobs, order, memories, values, given, now_s, capacity_cores, rule, resource
        )
    why = {}
    for place_now, name in enumerate(order):
        memory, one, cores = memories[name], values[name], given[name]
        why[name] = f"{one.why}; it gets {resource.amount(cores, '.2f')}"
        if name in even and len(even) > 1:
            why[name] += f", as an equal share, since {unsteady}"
        if renew or turn or memory.given_cores != cores:
            memories[name] = replace(
                memory,
                given_cores=cores,
                place=place_now,
                weight=weights[name],
                turn_s=now_s if turn else memory.turn_s,
                presses=name in equal,
                late=one.risks_deadline,
                outlooks=forecasts[name],
                told_s=now_s if renew else memory.told_s,
            )
    return Placed(
        limits={job.name: job.spec.bounds.ceiling_cores for job in jobs},
        uses=given,
        weights=weights,
        why=why,
        outlooks=forecasts,
        memory=(*memories.values(), *(one for one in others if one.name in there or one.goes_on)),
    )


def _pressed(snapshot: Snapshot) -> bool:
    """Whether foreign load fills the host: a training's use then understates its parallelism."""
    node = snapshot.node
    foreign_cores = node.foreign_cores or 0.0
    used_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.running)
    full = used_cores + foreign_cores > FULL_RATIO * node.cores
    return full and foreign_cores > LITTLE * node.cores


def _unsteady(
    jobs: Sequence[JobView],
    memories: Mapping[str, TrainingMemory],
    now_s: float,
    rule: AdaptiveParameters,
) -> str | None:
    """Why all share equally, in no order; None: they need not. Where one does not use all that it
    could have, it is unknown when each would end by equal shares, and which would end too late."""
    if rule.tiers_first or rule.patience >= _UNSURE_RATIO:
        return None
    for job in jobs:
        if memories[job.name].stalled_lately(now_s):
            return f"{job.name} stalls at times"
    for job in jobs:
        if job.started_at_s is not None and now_s - job.started_at_s < _WATCHED_S:
            return f"{job.name} has just started"
    return None


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


def _is_turn(
    memories: Mapping[str, TrainingMemory], values: Mapping[str, MarginalValue], now_s: float
) -> bool:
    """Whether order and weights are decided again: from time to time, and where a training came,
    went, or risks its deadline. Not each second: estimates vary with each evaluation, use with each
    pause of a loader, and each change costs several engine calls."""
    places = sorted(one.place for one in memories.values())
    return (
        any(one.turn_s is None or now_s >= one.turn_s + _TURN_S for one in memories.values())
        or places != list(range(len(places)))
        or any(not one.known and not one.silent for one in values.values())
        or any(one.risks_deadline is not memories[name].late for name, one in values.items())
    )


def _order(
    before: Sequence[str],
    memories: Mapping[str, TrainingMemory],
    values: Mapping[str, MarginalValue],
    groups: Mapping[str, int],
    rule: AdaptiveParameters,
) -> list[str]:
    """The names in order: deadlines at risk, those that would end too late (`groups`), then
    marginal value. One goes ahead of another that was `before` it only if it is clearly worth more,
    as estimates are noisy."""

    def rank(name: str) -> tuple[float, int, float]:
        """Its group, the earliest first, and its marginal value in the group."""
        one = values[name]
        if one.risks_deadline:
            return 0.0, 0, one.index
        group = groups.get(name, math.inf)
        return 1.0 + group, (one.tiers_done if rule.tiers_first else 0), one.index

    ranks = {name: rank(name) for name in before}
    order: list[str] = []
    for name in before:
        at, (group, done, value) = len(order), ranks[name]
        value /= 1.0 if memories[name].place == NEW else CLEARLY
        while at and (group, done, -value) < (*ranks[order[at - 1]][:2], -ranks[order[at - 1]][2]):
            at -= 1
        order.insert(at, name)
    return order


def _blocks(order: Sequence[str], equal: Collection[str]) -> list[list[str]]:
    """The order, with those together that share equally, by their own weights."""
    blocks: list[list[str]] = []
    for name in order:
        if blocks and name in equal and blocks[-1][0] in equal:
            blocks[-1].append(name)
        else:
            blocks.append([name])
    return blocks


def _given(
    blocks: Sequence[Sequence[str]],
    own: Mapping[str, float],
    floors: Mapping[str, float],
    widths: Mapping[str, float],
    values: Mapping[str, MarginalValue],
    capacity_cores: float,
    rule: AdaptiveParameters,
) -> dict[str, float]:
    """Cores by job: floors, then exploration by least attained service, then the rest in order."""
    order = [name for block in blocks for name in block]
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
    for block in blocks:
        claims = {
            name: Claim(own[name], given[name], max(widths[name], given[name])) for name in block
        }
        had = math.fsum(given[name] for name in block)
        given |= water_fill(left + had, claims)
        left = max(left + had - math.fsum(given[name] for name in block), 0.0)
    return given


def _weights(
    blocks: Sequence[Sequence[str]],
    own: Mapping[str, float],
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
    order = [name for block in blocks for name in block]
    for block in blocks:
        whole, behind_it = math.fsum(given[name] for name in block), following
        for name in block:
            share = whole * own[name] / math.fsum(own[one] for one in block)
            if block is blocks[0]:
                weight = AHEAD * share
            elif given[name] > floors[name]:
                # Exploration is not slowed down by the trainings before it in order.
                behind = min(before / capacity_cores, 1.0) if values[name].known else 0.0
                # Nor is one of nearly the first's value: their order may well be wrong.
                behind *= 1.0 - min(values[name].index / values[order[0]].index, 1.0)
                weight = MARGIN * share * math.exp(-_STEEPNESS * behind)
            else:
                weight, behind_it = following, following * FINE
            weights[name] = max(weight, min(floors[name], _UNASKED_CORES), _LEAST_WEIGHT)
        following = behind_it
        before += math.fsum(given[name] for name in block)
    asked = {name: floors[name] for name in order[1:] if name in promised and floors[name] > 0.0}
    others = math.fsum(weight for name, weight in weights.items() if name not in asked)
    free_cores = max(capacity_cores - math.fsum(asked.values()), LITTLE * capacity_cores)
    for name, floor in asked.items():
        weights[name] = max(weights[name], others * floor / free_cores)
    return weights

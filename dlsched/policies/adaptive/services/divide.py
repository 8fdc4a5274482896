"""Divides cores among services with a latency target: the inference half of the policy `adaptive`.

It sets ceilings, weights and reasons; `model` learns what a service needs, `select` chooses which
services are left out when not all fit.

Expected *uses* sum to at most the cores to divide. Ceilings may sum above them, since a service
does not use its ceiling while it waits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlsched.estimate.latency.law import LatencyModel
from dlsched.estimate.tuning import (
    AHEAD,
    CLEARLY,
    FINE,
    FULL_RATIO,
    LITTLE,
    MARGIN,
    MOSTLY,
    QUIET_S,
    ROOM_RATIO,
)
from dlsched.model.forecast import Forecast
from dlsched.model.resource import Resource
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.adaptive.services.forecast import (
    crowded_outlook,
    hopeless_outlook,
    met_outlook,
    unknown_outlook,
)
from dlsched.policies.adaptive.services.model import (
    ServiceMemory,
    Want,
    begun_trial,
    distrust,
    learned,
    urged,
)
from dlsched.policies.adaptive.services.select import (
    Need,
    Triage,
    fewest_givers,
    largest_first,
    triaged,
)
from dlsched.policies.adaptive.untargeted import expected_cores

__all__ = ["ServiceMemory", "place"]

_DRAINED_S = 30.0
"""Time in which a queue is to be drained, beside the requests that arrive."""


@dataclass(slots=True)
class _Placing:
    limits: dict[str, float | None] = field(default_factory=dict)
    uses: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    outlooks: dict[str, tuple[Forecast, ...]] = field(default_factory=dict)

    def give(
        self,
        name: str,
        limit: float | None,
        use: float,
        weight: float,
        answer: tuple[str, Forecast],
    ) -> None:
        self.limits[name], self.uses[name], self.weights[name] = limit, use, weight
        self.why[name], self.outlooks[name] = answer[0], (answer[1],)


def place(
    jobs: Sequence[JobView],
    snapshot: Snapshot,
    known: Sequence[ServiceMemory],
    capacity_cores: float,
    rule: AdaptiveParameters,
    *,
    node_cores: float | None = None,
    saturated: bool = False,
    wanted_cores: float = 0.0,
) -> Placed[ServiceMemory]:
    """Divides `capacity_cores` among these running jobs with a latency target.

    It must be called in every cycle, else it misses reports. `node_cores` is the node less what is
    promised to other jobs (None: `capacity_cores`). `saturated`: the host has no idle CPU.
    `wanted_cores`: what other jobs could use; in `slo`, ceilings leave it to them.
    """
    # Weights can do without ceilings; a GPU's time has no weights.
    free = rule.mode == "slo" and snapshot.node.weighs
    now_s, count = snapshot.now_s, max(len(jobs), 1)
    even = capacity_cores / count
    floor = FINE * even  # a service without CPU cannot report
    whole = node_cores or capacity_cores
    memory = _learned(jobs, snapshot, known, rule, whole, saturated=saturated)
    untrusted: dict[str, str] = {}
    for job in jobs:
        one = memory[job.name]
        why = distrust(one, job, now_s, rule, is_known=one.can_be_placed(free=free))
        if why is not None:
            untrusted[job.name] = why
    views = {job.spec.name: job for job in jobs}
    # Floors may exceed equal shares, and their sum may exceed the capacity.
    floors = [views[name].spec.bounds.floor_cores for name in untrusted]
    above = [cores for cores in floors if cores > even]
    each = min(even, max(capacity_cores - math.fsum(above), 0.0) / max(count - len(above), 1))
    needs: list[Need] = []
    fitted = all(one.kept or one.hopeless for one in known if one.name in views)
    placing = _Placing()
    hopeless: list[JobView] = []
    room = capacity_cores
    for job in jobs:
        name, one = job.spec.name, memory[job.spec.name]
        if name in untrusted:
            use = _give_untrusted(placing, job, untrusted[name], now_s, even, each)
            room -= use
        elif one.least is None or one.best is None:
            hopeless.append(job)
            room -= floor
        else:
            needs.append(
                _need(job, one, one.least, one.best, now_s, floor, free=free, fitted=fitted)
            )

    triage = triaged(needs, max(room, 0.0), floor, rule)
    if free and triage.short:
        # Under overload queues are long: those of the chosen services must drain before another
        # service is admitted.
        queued = [_queued(need, views[need.name], memory[need.name]) for need in needs]
        triage = triaged(queued, max(room, 0.0), floor, rule, LITTLE)
    fits = free and not triage.short and _fit(triage.met, views, whole)
    _give_met(
        *(placing, triage, views, memory, capacity_cores, rule, now_s, wanted_cores, even),
        free=free,
        fits=fits,
        resource=snapshot.resource,
    )
    _give_short(
        *(placing, triage, views, memory, rule, even, wanted_cores),
        free=free,
        resource=snapshot.resource,
    )
    for job in hopeless:
        one = memory[job.spec.name]
        band, resource = rule.mode == "band", snapshot.resource
        answer = hopeless_outlook(one, job, now_s, band=band, resource=resource)
        # A hopeless closed loop would take whole cores from the others and still miss its target.
        weight = even if free and one.may_be_open else floor
        placing.give(job.spec.name, None, floor, max(weight, 1e-6), answer)

    elsewhere = {job.spec.name for job in snapshot.jobs} - memory.keys()
    kept = [one for one in known if one.name in elsewhere]
    kept += _kept(placing, triage, views, memory, rule, free=free)
    return Placed(
        limits=placing.limits,
        uses=placing.uses,
        weights=placing.weights,
        open_loops=(
            _open_loops(placing, triage, memory, hopeless, untrusted, even, whole) if free else {}
        ),
        why=placing.why,
        outlooks=placing.outlooks,
        memory=tuple(sorted(kept, key=lambda one: one.name)),
    )


def _learned(
    jobs: Sequence[JobView],
    snapshot: Snapshot,
    known: Sequence[ServiceMemory],
    rule: AdaptiveParameters,
    whole_cores: float,
    *,
    saturated: bool,
) -> dict[str, ServiceMemory]:
    """What is known of each job after this cycle's reports.

    Urgency grows only while the requests of all crowd the node: where all fit as they are, the
    urgency of one only delays the others.
    """
    before = {one.name: one for one in known}
    memory: dict[str, ServiceMemory] = {}
    for job in jobs:
        target = job.spec.target
        assert isinstance(target, LatencyTarget)
        memory[job.name] = learned(
            job, target, before.get(job.name), snapshot, rule, saturated=saturated
        )
    asked_cores = math.fsum([one.asked_cores for one in memory.values()])
    if asked_cores <= ROOM_RATIO * whole_cores:
        return memory
    return {name: urged(one) for name, one in memory.items()}


def _need(
    job: JobView,
    one: ServiceMemory,
    least: Want,
    best: Want,
    now_s: float,
    floor: float,
    *,
    free: bool,
    fitted: bool,
) -> Need:
    """The mean cores that just meet its target, and those that meet it with a margin."""
    least_cores, best_cores = least.use_cores, best.use_cores
    if free and one.may_be_open:
        # The queue of an open loop does not drain at full utilisation.
        least_cores = best_cores = one.asked_cores / (FULL_RATIO if fitted else 1.0 / MARGIN)
    starved = free and one.may_be_open and job.progress.in_flight > 0
    quiet = now_s - one.at_s > max(QUIET_S, job.progress.missing_s)
    if quiet and not starved and job.usage.cpu_cores is not None:
        most = CLEARLY * job.usage.cpu_cores + floor
        least_cores, best_cores = min(least_cores, most), min(best_cores, most)
    weight = job.spec.weight
    return Need(job.name, weight, least_cores, max(least_cores, best_cores), one.kept)


def _queued(need: Need, job: JobView, one: ServiceMemory) -> Need:
    """The need plus the cores that drain an open loop's queue in time. This is hysteresis: a
    service with a queue stays left out, one without stays chosen."""
    if not one.may_be_open:
        return need
    cores = job.progress.in_flight * _model(one).work_core_s / _DRAINED_S
    return need._replace(least_cores=need.least_cores + cores, best_cores=need.best_cores + cores)


def _open_loops(
    placing: _Placing,
    triage: Triage,
    memory: Mapping[str, ServiceMemory],
    hopeless: Sequence[JobView],
    untrusted: Collection[str],
    even_cores: float,
    room_cores: float,
) -> dict[str, float]:
    """`Placed.open_loops`: the weights of services that may be open loops, in equal shares.

    They precede trainings, jobs without a target, and services that do not fit. One that cannot
    meet its target weighs one equal share, as under plain Docker, unless it is small or all
    services fit: then it takes little from the others at any weight.
    """
    ahead = dict.fromkeys(placing.limits, AHEAD)
    ahead |= {need.name: AHEAD * memory[need.name].urgency for need in triage.met}
    asked = {job.name: memory[job.name].asked_cores for job in hopeless}
    needed = math.fsum([need.least_cores for need in triage.met]) + math.fsum(asked.values())
    for name, cores in asked.items():
        small = cores <= MOSTLY * even_cores or needed <= ROOM_RATIO * room_cores
        ahead[name] = AHEAD if small else 1.0
    ahead |= dict.fromkeys([need.name for need in triage.short], 1.0)
    return {
        name: shares
        for name, shares in ahead.items()
        if memory[name].may_be_open or name in untrusted
    }


def _kept(
    placing: _Placing,
    triage: Triage,
    views: Mapping[str, JobView],
    memory: Mapping[str, ServiceMemory],
    rule: AdaptiveParameters,
    *,
    free: bool,
) -> list[ServiceMemory]:
    met = {need.name for need in triage.met}
    return [
        _after(one, views[name], placing.limits[name], name in met, rule, free=free)
        for name, one in memory.items()
    ]


def _fit(
    met: Sequence[Need],
    views: Mapping[str, JobView],
    cores: float,
    others_cores: float = 0.0,
) -> bool:
    """Whether the services' needs and `others_cores` fit the cores; with a margin (hysteresis)
    while any of them has a ceiling."""
    free = all(views[need.name].actual.cpu_cores is None for need in met)
    needed = math.fsum([need.best_cores for need in met]) + others_cores
    return needed * (1.0 if free else MARGIN) <= cores


def _give_untrusted(
    placing: _Placing, job: JobView, why: str, now_s: float, even_cores: float, most_cores: float
) -> float:
    """No ceiling and the weight of an equal share, for a service without a model that supports a
    ceiling. Returns the cores it is expected to use."""
    target = job.spec.target
    assert isinstance(target, LatencyTarget)
    begins = job.started_at_s is not None and now_s - job.started_at_s <= QUIET_S
    # No CPU is reserved for a service without requests.
    use = most_cores if begins else expected_cores(job, most_cores)
    use = max(use, job.spec.bounds.floor_cores)
    answer = unknown_outlook(target.seconds, target.quantile, f"{why}, it has no ceiling")
    placing.give(job.name, None, use, max(even_cores, 1e-6), answer)
    return use


def _give_met(
    placing: _Placing,
    triage: Triage,
    views: dict[str, JobView],
    memory: dict[str, ServiceMemory],
    capacity_cores: float,
    rule: AdaptiveParameters,
    now_s: float,
    wanted_cores: float,
    even_cores: float,
    *,
    free: bool,
    fits: bool,
    resource: Resource,
) -> None:
    """Places the services whose targets fit. `free`: weights divide; `fits`: they fit the node.

    Where weights divide, only closed loops of one client have ceilings: any other service may be an
    open loop, whose queue grows without bound below its mean need. Where the services fit the node,
    closed loops too have ceilings only while other jobs want the CPU that they would take.
    """
    band, part = rule.mode == "band", triage.part
    loops = [need for need in triage.met if not memory[need.name].may_be_open]
    best = math.fsum([need.best_cores for need in triage.met])
    others = best - math.fsum([need.best_cores for need in loops]) + wanted_cores
    # Without a ceiling, closed loops of one client use all CPU that they can get.
    taken = not fits or not _fit(loops, views, capacity_cores / CLEARLY, others)
    more = 1.0
    if not band and not triage.short and triage.met:
        more += max(triage.left_cores - wanted_cores, 0.0) / max(best, 1e-9)
    for need in triage.met:
        name = need.name
        job, one = views[name], memory[name]
        assert one.least is not None and one.best is not None
        limit: float | None = None
        use = need.least_cores
        if part >= 0.0:
            use += part * (need.best_cores - need.least_cores)
        else:
            use *= 1.0 + part
        loop = not one.may_be_open
        if not free or (taken and loop):
            limit = one.least.ceiling_cores
            if part >= 0.0:
                limit = more * (limit + part * (one.best.ceiling_cores - limit))
            else:
                limit *= 1.0 + part
            has_best = more > 1.0 and (job.actual.cpu_cores or 0.0) >= one.best.ceiling_cores
            # Dead band: each change costs an engine call, and the model is not exact either.
            near = CLEARLY - 1.0 if has_best else LITTLE if part >= 1.0 else FINE
            limit = _held(limit, job, near)
        # A request of an open loop wants a whole core for a moment, whatever its mean use.
        weight = use if loop or not free else max(use, even_cores)
        if not fits:
            weight *= AHEAD
        answer = met_outlook(one, job, now_s, limit, need.best_cores, band=band, resource=resource)
        placing.give(name, limit, use, max(weight, 1e-6), answer)


def _model(one: ServiceMemory) -> LatencyModel:
    assert one.model is not None
    return one.model


def _give_short(
    placing: _Placing,
    triage: Triage,
    views: dict[str, JobView],
    memory: dict[str, ServiceMemory],
    rule: AdaptiveParameters,
    even_cores: float,
    wanted_cores: float,
    *,
    free: bool,
    resource: Resource,
) -> None:
    """Shares the rest among services whose targets do not fit; in `band`, at most their need."""
    floor = FINE * even_cores
    count = max(len(triage.short), 1)
    spare = max(triage.left_cores - wanted_cores, 0.0) / count
    largest = largest_first(triage.met) if triage.short else []
    for need in triage.short:
        one = memory[need.name]
        assert one.best is not None
        limit = None
        if rule.mode == "band":
            limit = _held(one.best.ceiling_cores, views[need.name], CLEARLY - 1.0)
        lacks = fewest_givers(need.least_cores - floor - triage.left_cores, largest)
        needed = float(f"{need.least_cores:.3g}")
        answer = crowded_outlook(one.target_s, one.quantile, needed, lacks, resource)
        use, weight = min(floor + spare, even_cores, need.best_cores), floor
        if free and one.may_be_open:
            # Its queue grows meanwhile: it precedes trainings and jobs without a target.
            use, weight = min(floor + triage.left_cores / count, need.best_cores), even_cores
        placing.give(need.name, limit, use, max(weight, 1e-6), answer)


def _held(cores: float, job: JobView, ratio: float) -> float:
    """The applied ceiling if it is within the dead band `ratio`: a change costs an engine call."""
    actual = job.actual.cpu_cores
    near = actual is not None and abs(cores - actual) <= ratio * actual
    return actual if near and actual is not None else cores


def _after(
    one: ServiceMemory,
    job: JobView,
    limit: float | None,
    met: bool,
    rule: AdaptiveParameters,
    *,
    free: bool,
) -> ServiceMemory:
    """The memory after the decision; the same object where nothing changes."""
    kept = met or not one.can_be_placed(free=free)
    trial = one.trial
    if trial is None and met and rule.reverts:
        trial = begun_trial(one, job, limit)
    if kept == one.kept and trial is one.trial:
        return one
    return replace(one, kept=kept, trial=trial)

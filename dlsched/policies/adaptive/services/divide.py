"""Divides cores among services with a latency target: the inference half of the policy `adaptive`.

`model` learns what a service needs, `select` chooses which services are left out when not all fit,
`give` sets ceilings, weights and reasons.

Expected *uses* sum to at most the cores to divide. Ceilings may sum above them, since a service
does not use its ceiling while it waits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from dlsched.estimate.measured import surely_failing
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
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.adaptive.services.give import (
    Division,
    Placing,
    give_hopeless,
    give_met,
    give_short,
    give_untrusted,
)
from dlsched.policies.adaptive.services.model import (
    ServiceMemory,
    Want,
    begun_trial,
    calmed,
    distrust,
    learned,
    urged,
)
from dlsched.policies.adaptive.services.select import Need, Triage, triaged

_DRAINED_S = 30.0
"""Time in which a queue is to be drained, beside the requests that arrive."""


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
    untargeted_cores: float = 0.0,
) -> Placed[ServiceMemory]:
    """Divides `capacity_cores` among these running jobs with a latency target.

    It must be called in every cycle, else it misses reports. `node_cores` is the node less what is
    promised to other jobs (None: `capacity_cores`). `saturated`: the host has no idle CPU.
    `wanted_cores`: what other jobs could use, `untargeted_cores` of them those without a target; in
    `slo`, ceilings leave it to them.
    """
    count = max(len(jobs), 1)
    even = capacity_cores / count
    whole = node_cores or capacity_cores
    views = {job.name: job for job in jobs}
    memory = _learned(jobs, snapshot, known, rule, whole, saturated=saturated)
    given = Division(
        snapshot,
        views,
        memory,
        rule,
        capacity_cores,
        whole,
        wanted_cores,
        even,
        FINE * even,
        untargeted_cores,
    )
    now_s, free, floor = given.now_s, given.free, given.floor_cores
    untrusted: dict[str, str] = {}
    for name, job in views.items():
        known_now = memory[name].can_be_placed(free=free)
        why = distrust(memory[name], job, now_s, rule, is_known=known_now)
        if why is not None:
            untrusted[name] = why
    # Floors may exceed equal shares, and their sum may exceed the capacity.
    floors = [views[name].spec.bounds.floor_cores for name in untrusted]
    above = [cores for cores in floors if cores > even]
    each = min(even, max(capacity_cores - math.fsum(above), 0.0) / max(count - len(above), 1))
    needs: list[Need] = []
    fitted = all(one.kept or one.hopeless for one in known if one.name in views)
    placing = Placing()
    hopeless: list[str] = []
    room = capacity_cores
    for name, job in views.items():
        one = memory[name]
        if name in untrusted:
            room -= give_untrusted(placing, given, job, untrusted[name], each)
        elif one.least is None or one.best is None:
            hopeless.append(name)
            room -= floor
        else:
            needs.append(
                _need(job, one, one.least, one.best, now_s, floor, free=free, fitted=fitted)
            )

    triage = triaged(needs, max(room, 0.0), floor)
    if free and triage.short:
        # Under overload queues are long: those of the chosen services must drain before another
        # service is admitted.
        queued = [_queued(need, views[need.name], memory[need.name]) for need in needs]
        triage = triaged(queued, max(room, 0.0), floor, LITTLE)
    give_met(placing, given, triage)
    give_short(placing, given, triage)
    give_hopeless(placing, given, hopeless)

    elsewhere = {job.name for job in snapshot.jobs} - memory.keys()
    kept = [one for one in known if one.name in elsewhere]
    met = {need.name for need in triage.met}
    kept += [_after(one, views[name], placing, name in met, given) for name, one in memory.items()]
    return Placed(
        limits=placing.limits,
        uses=placing.uses,
        weights=placing.weights,
        open_loops=_open_loops(placing, given, triage, hopeless, untrusted) if free else {},
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
    urgency of one only delays the others. One that CPU does not help has none.
    """
    before = {one.name: one for one in known}
    memory: dict[str, ServiceMemory] = {}
    for job in jobs:
        target = job.spec.target
        assert isinstance(target, LatencyTarget)
        memory[job.name] = learned(
            job, target, before.get(job.name), snapshot, rule, saturated=saturated
        )
        if not job.cpu_helps:
            memory[job.name] = calmed(memory[job.name])
    asked_cores = math.fsum([one.asked_cores for one in memory.values()])
    if asked_cores <= ROOM_RATIO * whole_cores:
        return memory
    helped = {job.name for job in jobs if job.cpu_helps}
    return {name: urged(one) if name in helped else one for name, one in memory.items()}


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
    assert one.model is not None
    cores = job.progress.in_flight * one.model.work_core_s / _DRAINED_S
    return need._replace(least_cores=need.least_cores + cores, best_cores=need.best_cores + cores)


def _open_loops(
    placing: Placing,
    given: Division,
    triage: Triage,
    hopeless: Sequence[str],
    untrusted: Collection[str],
) -> dict[str, float]:
    """`Placed.open_loops`: the weights of services that may be open loops, in equal shares.

    They precede trainings, jobs without a target, and services that do not fit. One that cannot
    meet its target weighs one equal share, as under plain Docker, unless it is small or all
    services fit: then it takes little from the others at any weight.
    """
    memory = given.memory
    ahead = dict.fromkeys(placing.limits, AHEAD)
    ahead |= {need.name: AHEAD * memory[need.name].urgency for need in triage.met}
    asked = {name: memory[name].asked_cores for name in hopeless}
    needed = math.fsum([need.least_cores for need in triage.met]) + math.fsum(asked.values())
    for name, cores in asked.items():
        small = cores <= MOSTLY * given.even_cores or needed <= ROOM_RATIO * given.whole_cores
        ahead[name] = AHEAD if small else 1.0
    ahead |= dict.fromkeys([need.name for need in triage.short], 1.0)
    # More CPU may not help a service whose requests fail, and must not be taken from others.
    ahead |= dict.fromkeys([name for name in untrusted if _fails(given.views[name])], 1.0)
    # It makes a service slower whose requests are in each other's way.
    eased = {name: one.ease.shares for name, one in memory.items()}
    ahead |= {name: shares for name, shares in eased.items() if shares is not None}
    return {
        name: shares
        for name, shares in ahead.items()
        if memory[name].may_be_open or name in untrusted
    }


def _fails(job: JobView) -> bool:
    return surely_failing(job.progress.recent, job.max_failed_ratio)


def _after(
    one: ServiceMemory, job: JobView, placing: Placing, met: bool, given: Division
) -> ServiceMemory:
    """The memory after the decision; the same object where nothing changes."""
    limit = placing.limits[one.name]
    kept = met or not one.can_be_placed(free=given.free)
    trial = one.trial
    if trial is None and met:
        trial = begun_trial(one.model, job, limit)
    limited = limit is not None
    room_since_s = None
    if limited and not placing.taken:
        room_since_s = given.now_s if one.room_since_s is None else one.room_since_s
    after = replace(one, kept=kept, trial=trial, limited=limited, room_since_s=room_since_s)
    return one if after == one else after

"""Services with a latency target: the inference half of the policy `adaptive`.

Owns what each of them gets: ceilings, weights, and the reasons. It must not learn (that is
`adaptive_service_memory`) nor choose who is left out (`adaptive_triage`).

Expected *uses* sum within the cores to divide, ceilings may sum above them: a service that waits a
part of its time does not use its ceiling then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dlsched.model import JobView, LatencyTarget, Outlook, Snapshot
from dlsched.policies.adaptive_parameters import AdaptiveParameters
from dlsched.policies.adaptive_placed import Placed
from dlsched.policies.adaptive_service_memory import ServiceMemory, begun_trial, learned
from dlsched.policies.adaptive_service_outlook import (
    crowded_outlook,
    hopeless_outlook,
    met_outlook,
    unknown_outlook,
)
from dlsched.policies.adaptive_triage import Need, Triage, fewest_givers, largest_first, triaged
from dlsched.policies.adaptive_untargeted import expected_cores

__all__ = ["ServiceMemory", "place"]

_FLOOR_RATIO = 0.02
"""Part of an even share that nobody goes below: who gets nothing tells nothing."""
_FIRST = 20.0
"""Who is satisfied weighs so much more per core than who is not, where the host is full."""
_LIFT_RATIO, _LOWER_RATIO = 0.7, 0.8
"""`slo`: no ceilings while less than this part of the cores is needed, and then until the second:
weights divide, and are no more exact than that."""
_HELD_RATIO, _HELD_TIGHT_RATIO = 0.03, 0.02
"""A ceiling stays when another would be as near as that; the second when there is no room."""
_HELD_ROOM_RATIO = 0.1
"""The same at most in `slo` where there is room, as long as all have more than they aim at."""
_HELD_SHORT_RATIO = 0.3
"""The same for one that is not satisfied: it gets what is left, whatever its ceiling."""
_QUIET_S = 3.0
"""Without a request for so long, what it uses is what it needs."""


@dataclass(slots=True)
class _Placing:
    """Placed, as it comes about."""

    limits: dict[str, float | None] = field(default_factory=dict)
    uses: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    outlooks: dict[str, tuple[Outlook, ...]] = field(default_factory=dict)

    def give(
        self,
        name: str,
        limit: float | None,
        use: float,
        weight: float,
        told: tuple[str, Outlook],
    ) -> None:
        self.limits[name], self.uses[name], self.weights[name] = limit, use, weight
        self.why[name], self.outlooks[name] = told[0], (told[1],)


def place(
    jobs: Sequence[JobView],
    snapshot: Snapshot,
    known: Sequence[ServiceMemory],
    capacity_cores: float,
    rule: AdaptiveParameters,
    *,
    saturated: bool = False,
    wanted_cores: float = 0.0,
) -> Placed[ServiceMemory]:
    """What these running jobs with a latency target get of so many cores.

    It wants to be asked in every cycle: what a job tells in between is lost to it. `saturated`: the
    host has no idle CPU. `wanted_cores` are what others could use: in `slo` nobody is made faster
    than it aims at with them.
    """
    before = {one.name: one for one in known}
    now_s, count = snapshot.now_s, max(len(jobs), 1)
    even = capacity_cores / count
    floor = _FLOOR_RATIO * even
    blind = {
        job.name: max(floor, job.spec.bounds.floor_cores)
        for job in jobs
        if job.blind is not None and now_s - _told_s(job) > rule.blind_s
    }
    # Floors may be more than even shares, and more than there is.
    others = max(capacity_cores - math.fsum(blind.values()), 0.0)
    each = min(even, others / max(count - len(blind), 1))
    views: dict[str, JobView] = {}
    memory: dict[str, ServiceMemory] = {}
    needs: list[Need] = []
    placing = _Placing()
    hopeless: list[JobView] = []
    room = capacity_cores
    for job in jobs:
        name, target = job.spec.name, job.spec.target
        assert isinstance(target, LatencyTarget)
        one = learned(job, target, before.get(name), snapshot, rule, saturated=saturated)
        views[name], memory[name] = job, one
        if name in blind:
            held = f"blind, {job.blind}: it has the floor, until it tells something"
            told = unknown_outlook(target.seconds, target.quantile, held)
            placing.give(name, blind[name], blind[name], max(floor, 1e-6), told)
            room -= blind[name]
        elif not one.is_known:
            told = unknown_outlook(
                target.seconds, target.quantile, "too few requests yet, it has no ceiling"
            )
            # Who is asked for nothing, or tells nonsense, must not keep CPU from the others.
            begins = job.started_at_s is not None and now_s - job.started_at_s <= _QUIET_S
            use = each if begins else expected_cores(job, each)
            placing.give(name, None, use, max(even, 1e-6), told)
            room -= use
        elif one.least is None or one.best is None:
            hopeless.append(job)
            room -= floor
        else:
            least, best = one.least.use_cores, one.best.use_cores
            if now_s - one.at_s > _QUIET_S and job.usage.cpu_cores is not None:
                most = 1.2 * job.usage.cpu_cores + floor
                least, best = min(least, most), min(best, most)
            needs.append(Need(name, job.spec.weight, least, max(least, best), one.kept))

    triage = triaged(needs, max(room, 0.0), floor, rule)
    _give_met(
        placing, triage, views, memory, capacity_cores, rule, now_s, wanted_cores, bool(hopeless)
    )
    _give_short(placing, triage, views, memory, rule, even, wanted_cores)
    for job in hopeless:
        one = memory[job.spec.name]
        told = hopeless_outlook(one, job, now_s, band=rule.mode == "band")
        placing.give(job.spec.name, None, floor, max(floor, 1e-6), told)

    met = {need.name for need in triage.met}
    names = {job.spec.name for job in snapshot.jobs}
    kept = [
        _after(one, views[name], placing.limits[name], name in met, rule)
        for name, one in memory.items()
    ]
    kept += [one for one in known if one.name in names and one.name not in memory]
    return Placed(
        placing.limits,
        placing.uses,
        placing.weights,
        placing.why,
        placing.outlooks,
        tuple(sorted(kept, key=lambda one: one.name)),
    )


def _told_s(job: JobView) -> float:
    """When it last told anything, or began."""
    return max(job.progress.as_of_s or 0.0, job.started_at_s or 0.0)


def _give_met(
    placing: _Placing,
    triage: Triage,
    views: dict[str, JobView],
    memory: dict[str, ServiceMemory],
    capacity_cores: float,
    rule: AdaptiveParameters,
    now_s: float,
    wanted_cores: float,
    contested: bool,
) -> None:
    """What meets the targets, and in `slo` what nobody else could use."""
    band, part = rule.mode == "band", triage.part
    lifted, more = False, 1.0
    if not band and not triage.short and not contested and triage.met:
        best = sum([need.best_cores for need in triage.met])
        free = all(views[need.name].actual.cpu_cores is None for need in triage.met)
        ratio = _LOWER_RATIO if free else _LIFT_RATIO
        lifted = best + wanted_cores < ratio * capacity_cores
        more = 1.0 + max(triage.left_cores - wanted_cores, 0.0) / max(best, 1e-9)
    held = _HELD_RATIO if part >= 1.0 else _HELD_TIGHT_RATIO
    held = max(held, min(_HELD_ROOM_RATIO, (more - 1.0) / 2.0))
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
        if not lifted:
            limit = one.least.ceiling_cores
            if part >= 0.0:
                limit = more * (limit + part * (one.best.ceiling_cores - limit))
            else:
                limit *= 1.0 + part
            limit = _held(limit, job, held)
        weight = max(use if lifted else _FIRST * use, 1e-6)
        told = met_outlook(one, job, now_s, limit, band=band)
        placing.give(name, limit, use, weight, told)


def _give_short(
    placing: _Placing,
    triage: Triage,
    views: dict[str, JobView],
    memory: dict[str, ServiceMemory],
    rule: AdaptiveParameters,
    even_cores: float,
    wanted_cores: float,
) -> None:
    """What is left, to those whose targets do not fit: in `band`, no more than meets them."""
    floor = _FLOOR_RATIO * even_cores
    spare = max(triage.left_cores - wanted_cores, 0.0) / max(len(triage.short), 1)
    largest = largest_first(triage.met) if triage.short else []
    for need in triage.short:
        one = memory[need.name]
        assert one.best is not None
        limit = None
        if rule.mode == "band":
            limit = _held(one.best.ceiling_cores, views[need.name], _HELD_SHORT_RATIO)
        lacks = fewest_givers(need.least_cores - floor - triage.left_cores, largest)
        needed = float(f"{need.least_cores:.3g}")
        told = crowded_outlook(one.target_s, one.quantile, needed, lacks)
        use = min(floor + spare, even_cores, need.best_cores)
        placing.give(need.name, limit, use, max(floor, 1e-6), told)


def _held(cores: float, job: JobView, ratio: float) -> float:
    """The ceiling in force, where that is near enough: each change costs an engine call."""
    actual = job.actual.cpu_cores
    near = actual is not None and abs(cores - actual) <= ratio * actual
    return actual if near and actual is not None else cores


def _after(
    one: ServiceMemory,
    job: JobView,
    limit: float | None,
    met: bool,
    rule: AdaptiveParameters,
) -> ServiceMemory:
    """Its memory after the decision; the same object where nothing changes."""
    kept = met or not one.is_known
    trial = one.trial
    if trial is None and met and rule.reverts:
        trial = begun_trial(one, job, limit)
    if kept == one.kept and trial is one.trial:
        return one
    return replace(one, kept=kept, trial=trial)

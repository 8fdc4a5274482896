"""What each service gets: ceiling, expected use, weight, and the reason with its forecast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.estimate.tuning import AHEAD, CLEARLY, FINE, LITTLE, MARGIN, QUIET_S
from dlsched.model.forecast import Forecast
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.services.forecast import (
    crowded_outlook,
    hopeless_outlook,
    met_outlook,
    unknown_outlook,
)
from dlsched.policies.adaptive.services.model import ServiceMemory
from dlsched.policies.adaptive.services.select import Need, Triage, fewest_givers, largest_first
from dlsched.policies.adaptive.untargeted import expected_cores

_LEAST_WEIGHT = 1e-6
"""In cores: a weight must be positive."""


@dataclass(frozen=True, slots=True)
class Division:
    """What one division among services rests on; mappings are by job."""

    snapshot: Snapshot
    views: Mapping[str, JobView]
    memory: Mapping[str, ServiceMemory]
    rule: AdaptiveParameters
    capacity_cores: float
    whole_cores: float
    """The node less what is promised to other jobs."""
    wanted_cores: float
    """What other jobs could use."""
    even_cores: float
    """An equal share of the capacity."""
    floor_cores: float
    """What every service gets: without CPU it cannot report."""
    untargeted_cores: float = 0.0
    """What jobs without a target could use."""

    @property
    def now_s(self) -> float:
        return self.snapshot.now_s

    @property
    def free(self) -> bool:
        """Whether weights divide, not ceilings. A GPU's time has no weights."""
        return self.rule.mode == "slo" and self.snapshot.node.weighs


@dataclass(slots=True)
class Placing:
    """What was given so far, by job."""

    limits: dict[str, float | None] = field(default_factory=dict)
    uses: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    outlooks: dict[str, tuple[Forecast, ...]] = field(default_factory=dict)
    taken: bool = False
    """Whether closed loops would take CPU that others want, so that they need ceilings."""

    def give(
        self,
        name: str,
        limit: float | None,
        use: float,
        weight: float,
        answer: tuple[str, Forecast],
    ) -> None:
        self.limits[name], self.uses[name] = limit, use
        self.weights[name] = max(weight, _LEAST_WEIGHT)
        self.why[name], self.outlooks[name] = answer[0], (answer[1],)


def give_untrusted(
    placing: Placing, given: Division, job: JobView, why: str, most_cores: float
) -> float:
    """No ceiling and the weight of an equal share, for a service without a model that supports a
    ceiling. Returns the cores it is expected to use."""
    target = job.spec.target
    assert isinstance(target, LatencyTarget)
    begins = job.started_at_s is not None and given.now_s - job.started_at_s <= QUIET_S
    # No CPU is reserved for a service without requests.
    use = most_cores if begins else expected_cores(job, most_cores)
    use = max(use, job.spec.bounds.floor_cores)
    answer = unknown_outlook(target.seconds, target.quantile, f"{why}; no limit is set")
    placing.give(job.name, None, use, given.even_cores, answer)
    return use


def give_met(placing: Placing, given: Division, triage: Triage) -> None:
    """Places the services whose targets fit.

    Where weights divide, only closed loops of one client have ceilings: any other service may be an
    open loop, whose queue grows without bound below its mean need. Where the services fit the node,
    closed loops too have ceilings only while other services and jobs without a target want the CPU
    that they would take, and for a window after that. Trainings yield by their weights.
    """
    views, memory, free, wanted_cores = given.views, given.memory, given.free, given.wanted_cores
    fits = free and not triage.short and _fit(triage.met, views, given.whole_cores)
    resource = given.snapshot.resource
    band, part = given.rule.mode == "band", triage.part
    loops = [need for need in triage.met if memory[need.name].can_be_limited]
    best = math.fsum([need.best_cores for need in triage.met])
    others = best - math.fsum([need.best_cores for need in loops]) + given.untargeted_cores
    # Without a ceiling, closed loops of one client use all CPU that they can get. What trainings
    # leave they may: under a ceiling their requests wait for the rest of whole periods.
    taken = not fits or not _fit(loops, views, given.capacity_cores / CLEARLY, others)
    placing.taken = taken
    # Weights guarantee no `cpus.min`, and compare no containers under different parents.
    promised = any(
        job.spec.bounds.promised for job in given.snapshot.running if job.name not in views
    )
    siblings = len({job.adopted for job in views.values()}) == 1
    stays = siblings and not triage.short and not wanted_cores
    more = 1.0
    if not band and not triage.short and triage.met:
        more += max(triage.left_cores - wanted_cores, 0.0) / max(best, 1e-9)
    for need in triage.met:
        name = need.name
        job, one = views[name], memory[name]
        limit: float | None = None
        use = need.least_cores + part * (need.best_cores - need.least_cores)
        loop = one.can_be_limited
        # Processes outside come and go, and each change of all ceilings costs an engine call a job:
        # ceilings stay for a window after they were needed.
        since_s = given.now_s if one.room_since_s is None else one.room_since_s
        lasts = one.limited and given.now_s - since_s < given.snapshot.window_s
        if not free or (loop and (taken or lasts)):
            if free and not promised:
                limit = _beside_weights(one, job, stays=stays)
            else:
                limit = _by_need(one, job, part, more)
        # A request of an open loop wants a whole core for a moment, whatever its mean use.
        weight = use if loop or not free else max(use, given.even_cores)
        if not fits:
            weight *= AHEAD
        answer = met_outlook(
            one, job, given.now_s, limit, need.best_cores, band=band, resource=resource
        )
        placing.give(name, limit, use, weight, answer)


def _beside_weights(one: ServiceMemory, job: JobView, *, stays: bool) -> float:
    """The ceiling where weights divide under contention: none follows the capacity down. `stays`:
    it is not lowered, since no other job wants what it would leave."""
    assert one.best is not None
    cores, actual = one.best.ceiling_cores, job.actual.cpu_cores
    if stays and actual is not None:
        cores = max(cores, actual)
    return _held(cores, job, LITTLE)


def _by_need(one: ServiceMemory, job: JobView, part: float, more: float) -> float:
    """The ceiling where ceilings divide: so far between what just meets the target and what meets
    it with a margin (`part`), and its part of the rest (`more`, a factor)."""
    assert one.least is not None and one.best is not None
    least_cores, best_cores = one.least.ceiling_cores, one.best.ceiling_cores
    # Dead band: each change costs an engine call, and the model is not exact either.
    near = LITTLE
    if more > 1.0 and (job.actual.cpu_cores or 0.0) >= best_cores:
        near = CLEARLY - 1.0
    elif part < 1.0:
        near = FINE
    return _held(more * (least_cores + part * (best_cores - least_cores)), job, near)


def give_short(placing: Placing, given: Division, triage: Triage) -> None:
    """Shares the rest among services whose targets do not fit; in `band`, at most their need."""
    floor, even_cores = given.floor_cores, given.even_cores
    count = max(len(triage.short), 1)
    spare = max(triage.left_cores - given.wanted_cores, 0.0) / count
    largest = largest_first(triage.met) if triage.short else []
    for need in triage.short:
        one = given.memory[need.name]
        assert one.best is not None
        limit = None
        if given.rule.mode == "band":
            limit = _held(one.best.ceiling_cores, given.views[need.name], CLEARLY - 1.0)
        lacks = fewest_givers(need.least_cores - floor - triage.left_cores, largest)
        needed = float(f"{need.least_cores:.3g}")
        answer = crowded_outlook(one.target_s, one.quantile, needed, lacks, given.snapshot.resource)
        use, weight = min(floor + spare, even_cores, need.best_cores), floor
        if given.free and one.may_be_open:
            # Its queue grows meanwhile: it precedes trainings and jobs without a target.
            use, weight = min(floor + triage.left_cores / count, need.best_cores), even_cores
        placing.give(need.name, limit, use, weight, answer)


def give_hopeless(placing: Placing, given: Division, names: Sequence[str]) -> None:
    """No ceiling for services whose targets no amount of CPU meets."""
    band, resource = given.rule.mode == "band", given.snapshot.resource
    for name in names:
        one, job = given.memory[name], given.views[name]
        answer = hopeless_outlook(one, job, given.now_s, band=band, resource=resource)
        # A hopeless closed loop would take whole cores from the others and still miss its target.
        weight = given.even_cores if given.free and one.may_be_open else given.floor_cores
        placing.give(name, None, given.floor_cores, weight, answer)


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


def _held(cores: float, job: JobView, ratio: float) -> float:
    """The applied ceiling if it is within the dead band `ratio`: a change costs an engine call."""
    actual = job.actual.cpu_cores
    near = actual is not None and abs(cores - actual) <= ratio * actual
    return actual if near and actual is not None else cores

"""The policy `adaptive`: latency targets first, trainings on the remaining CPU, work-conserving."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dlsched.estimate.tuning import (
    AHEAD,
    CLEARLY,
    FINE,
    FULL_RATIO,
    LITTLE,
    MARGIN,
    MOSTLY,
    ROOM_RATIO,
    SETTLED_S,
)
from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.model.units import same_cores
from dlsched.policies.adaptive import untargeted
from dlsched.policies.adaptive.holding import (
    NOT_HELD,
    Held,
    Hold,
    held,
    helps,
    lacking,
    left_cores,
    let_go,
    stepped,
)
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.adaptive.services import divide as divide_services
from dlsched.policies.adaptive.services.forecast import expected_s
from dlsched.policies.adaptive.services.model import ServiceMemory
from dlsched.policies.adaptive.trainings import divide as divide_trainings
from dlsched.policies.adaptive.trainings.model import TrainingMemory
from dlsched.policies.fair_share import Claim, claim, fair_shares, water_fill


@dataclass(frozen=True, slots=True)
class Capacity:
    cores: float
    saturated: bool = False
    """Whether the host is full, and nearly so without the trainings that yield (in the idle class,
    or under a ceiling): a job may then get less than its ceiling, and less than it could use."""


def believed(snapshot: Snapshot, before_cores: float | None) -> Capacity:
    """The capacity now, given the last estimate (None: there is none).

    While the host has idle CPU it is the node's capacity, regained step by step after a shortage.
    On a full host it is the jobs' present use plus a tenth: CPU that becomes free is only noticed
    when it is tried. It is their present use alone where most of it is that of services under
    ceilings, as these try all the time. CPU that the system itself uses is left out. Uses that
    cannot be read count 0.
    """
    node = snapshot.node
    used_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.jobs)
    foreign_cores = node.foreign_cores or 0.0
    busy_cores = used_cores + foreign_cores
    full_cores = FULL_RATIO * node.cores
    cores = node.capacity_cores
    if busy_cores > full_cores:
        system_cores = min(foreign_cores, LITTLE * node.cores)
        limited = [job for job in snapshot.running if _limited(job)]
        limited_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in limited)
        # Leaving a single one out would give its cores to processes outside alone.
        several = len(limited) > 1 and foreign_cores > system_cores
        tried = several and limited_cores > MOSTLY * used_cores
        grows = 1.0 if tried else MARGIN
        cores = min(cores, grows * used_cores, node.cores - system_cores)
    elif before_cores is not None:
        idle_cores = max(node.cores - busy_cores, 0.0)
        # Other processes may take the rest of the idle CPU again.
        cores = min(cores, max(MARGIN * before_cores, used_cores + MOSTLY * idle_cores))
    # Dead band: foreign use always varies, and each change of capacity would change all ceilings.
    if before_cores is not None and abs(cores - before_cores) < FINE * before_cores:
        cores = min(before_cores, node.capacity_cores)
    floors_cores = math.fsum(job.spec.bounds.floor_cores for job in snapshot.jobs if job.runs)
    training_cores = math.fsum(
        job.usage.cpu_cores or 0.0
        for job in snapshot.running
        if isinstance(job.spec.target, AccuracyTarget)
        and (job.cpu_idle or job.actual.cpu_cores is not None)
    )
    return Capacity(
        cores=max(cores, min(floors_cores, node.capacity_cores)),
        # On a full host trainings keep a small share by their weight: they never yield all of it.
        saturated=busy_cores > full_cores and busy_cores - training_cores > ROOM_RATIO * node.cores,
    )


def _limited(job: JobView) -> bool:
    """Whether it is a service under a ceiling that is not its own."""
    ceiling = job.actual.cpu_cores
    serves = isinstance(job.spec.target, LatencyTarget)
    return serves and ceiling is not None and not same_cores(ceiling, job.spec.bounds.ceiling_cores)


_KEPT_RATIO = 0.1
"""Fraction of an equal share kept for trainings and untargeted jobs, whatever services need."""
_LEAST_WEIGHT = 1e-3
"""In cores: the kernel has no weight of zero."""
_ROUNDING = 1e-6
"""Tolerance for floating-point error, as a fraction of one step of a ceiling."""


@dataclass(frozen=True, slots=True)
class AdaptiveMemory:
    """State from one decision to the next: job models, the capacity estimate, the hold."""

    services: tuple[ServiceMemory, ...] = ()
    trainings: tuple[TrainingMemory, ...] = ()
    capacity_cores: float | None = None
    hold: Hold = NOT_HELD
    heavy: Mapping[str, float] = field(default_factory=dict)
    """Jobs without a target that use nearly all that they can have: until when they stay so."""
    light: tuple[str, ...] = ()
    """Those that use little."""
    greedy: tuple[str, ...] = ()
    """Services that weigh an equal share, since they use more than they are known to need."""


@dataclass(frozen=True, slots=True)
class Divided:
    """A node, divided among services, trainings and jobs without a target (`rest`)."""

    capacity: Capacity
    free_cores: float
    """Capacity less what is reserved for jobs whose limits are not decided now."""
    services: Placed[ServiceMemory]
    trainings: Placed[TrainingMemory]
    rest: Placed[None]
    even_cores: float
    """Equal share of the node for a job of weight 1."""
    heavy: Mapping[str, float]
    light: tuple[str, ...]
    greedy: tuple[str, ...]
    """`AdaptiveMemory`'s after this cycle."""


class AdaptivePolicy:
    """Gives services the CPU that meets their targets, trainings the CPU that reaches most tiers.

    It learns a model of each job while the job runs, from the CPU time that the kernel counts and
    from the job's reports: latency over cores for a service, metric over steps for a training.
    Services with a latency target are placed first. What they are expected to leave unused goes to
    trainings by the marginal value of a core-second, and to jobs without a target by weight.
    Ceilings may sum above the node: under contention the weights decide.
    """

    Parameters: ClassVar[type[AdaptiveParameters]] = AdaptiveParameters
    Memory: ClassVar[type[AdaptiveMemory]] = AdaptiveMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits(heeds_progress=False)

    def __init__(self, parameters: AdaptiveParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """Limits and weights of every running job, and the forecasts for its targets."""
        rule = self.parameters
        before = memory if isinstance(memory, AdaptiveMemory) else AdaptiveMemory()
        parts = divided(snapshot, before, rule)
        services, trainings, rest = parts.services, parts.trainings, parts.rest
        limits = {**services.limits, **trainings.limits, **rest.limits}
        hold, back = NOT_HELD, Held()
        if not snapshot.node.weighs:
            limits = _ceilings_alone(snapshot, parts, rule)
        elif rule.mode == "slo":
            hold, back = _held_back(snapshot, parts, before.hold)
        limits |= {name: min(cores, limits[name] or cores) for name, cores in back.ceilings.items()}
        why = {**services.why, **trainings.why, **rest.why, **_why_even(parts), **back.why}
        for name in _slowed(snapshot, limits) - back.ceilings.keys():
            limits[name] = None
            why[name] = f"{why[name]}; {_NO_CEILING}"
        return Decision(
            limits={job.name: Limits(limits[job.name]) for job in snapshot.running},
            why=why,
            memory=AdaptiveMemory(
                services.memory,
                trainings.memory,
                parts.capacity.cores,
                hold,
                parts.heavy,
                parts.light,
                parts.greedy,
            ),
            next_s=rule.interval_s,
            weights={**_weights(parts, snapshot), **dict.fromkeys(back.behind, 0.0)},
            outlooks={**services.outlooks, **trainings.outlooks},
            expected_s=_expected_s(services, limits),
        )


_NO_CEILING = "but no CPU limit is set, as the job's threads would spin under one"


def _slowed(snapshot: Snapshot, limits: Mapping[str, float | None]) -> set[str]:
    """Jobs that a ceiling would slow by far more than it takes from them: their threads spin. They
    did in this start, perhaps under a ceiling that has gone since. Where there are no weights, a
    ceiling is all there is; so is one by which a training is held back, and it stays."""
    if not snapshot.node.weighs:
        return set()
    return {
        job.name for job in snapshot.running if job.threads.spun and limits[job.name] is not None
    }


def _why_even(parts: Divided) -> dict[str, str]:
    """The reasons of services that weigh an equal share."""
    why = "the job uses more CPU than it is known to need, so its weight is that of an equal share"
    known = parts.services.why
    return {name: f"{known[name]}; {why}" for name in parts.greedy if name in known}


def _expected_s(
    services: Placed[ServiceMemory], limits: Mapping[str, float | None]
) -> dict[str, float]:
    """The latencies expected under these ceilings, of services whose targets fit: the others get
    what is left, whatever their ceiling."""
    known = {one.name: one for one in services.memory}
    expected = {
        name: expected_s(known[name], limits[name])
        for name, outlooks in services.outlooks.items()
        if outlooks[0].needs_cores is not None and outlooks[0].kind is not ForecastKind.CROWDED
    }
    return {name: one_s for name, one_s in expected.items() if one_s is not None}


def divided(snapshot: Snapshot, before: AdaptiveMemory, rule: AdaptiveParameters) -> Divided:
    """Divides the node: services first, then jobs without a target, then trainings on the rest."""
    jobs = sorted(snapshot.running, key=lambda job: job.name)
    serving = [job for job in jobs if isinstance(job.spec.target, LatencyTarget)]
    training = [job for job in jobs if isinstance(job.spec.target, AccuracyTarget)]
    others = [job for job in jobs if job.spec.target is None]

    capacity = believed(snapshot, before.capacity_cores)
    kept = math.fsum(map(_kept_cores, snapshot.jobs))
    free = max(capacity.cores - kept, 0.0)
    floors = math.fsum(job.spec.bounds.floor_cores for job in (*training, *others))
    services = divide_services.place(
        serving,
        snapshot,
        before.services,
        max(free - floors, 0.0),
        rule,
        node_cores=max(snapshot.node.capacity_cores - kept - floors, 0.0),
        saturated=capacity.saturated,
        wanted_cores=_wanted_cores(training, others, before.trainings, free),
        untargeted_cores=_wanted_cores((), others, (), free),
    )
    left = max(free - math.fsum(services.uses.values()), 0.0)
    shares = fair_shares([*training, *others], left) if others else {}
    theirs = {job.name: shares[job.name] for job in others}
    even = snapshot.node.capacity_cores / max(math.fsum(job.spec.weight for job in jobs), 1e-9)
    heavy = untargeted.heavy(others, training, before.heavy, snapshot, free, even)
    light = untargeted.takes_little(others, before.light, even)
    behind, little = (tuple(heavy), light) if snapshot.node.weighs else ((), ())
    rest = untargeted.place(others, theirs, behind, little, snapshot.resource)
    left = max(left - math.fsum(rest.uses.values()), 0.0)
    trainings = divide_trainings.place(training, snapshot, before.trainings, left, rule)
    greeds = greedy(snapshot, services.memory, before.greedy, even)
    return Divided(capacity, free, services, trainings, rest, even, heavy, light, greeds)


def greedy(
    snapshot: Snapshot,
    services: Sequence[ServiceMemory],
    before: Collection[str],
    even_cores: float,
) -> tuple[str, ...]:
    """The names of services that take more CPU than they are known to need: they weigh an equal
    share, as under plain Docker, where others that may be open loops weigh more.

    They use more than half of an equal share while no answer of theirs is known, or while they are
    far from their targets and need much less, as a loop of several clients without pauses does. One
    that was greedy `before` still is until it comes near its target.
    """
    known = {one.name: one for one in services}

    def is_greedy(job: JobView) -> bool:
        one, used_cores = known[job.name], job.usage.window_cores
        if used_cores is None:
            return job.name in before
        share_cores = even_cores * job.spec.weight
        if used_cores <= MOSTLY * share_cores or not one.may_be_open:
            return False
        if one.model is None:
            return snapshot.now_s - (job.started_at_s or 0.0) >= SETTLED_S
        most = 1.0 / CLEARLY if job.name in before else MOSTLY
        needs_cores = CLEARLY * CLEARLY * one.asked_cores
        return one.latency_ratio < most and needs_cores < min(used_cores, share_cores)

    serving = (job for job in snapshot.running if isinstance(job.spec.target, LatencyTarget))
    return tuple(sorted(job.name for job in serving if job.name in known and is_greedy(job)))


def _held_back(snapshot: Snapshot, parts: Divided, before: Hold) -> tuple[Hold, Held]:
    """The hold after this cycle, and the trainings it holds back for services that miss targets."""
    trainings = [job for job in snapshot.running if job.name in parts.trainings.uses]
    serving = [job for job in snapshot.running if job.name in parts.services.uses]
    used = math.fsum(job.usage.cpu_cores or 0.0 for job in serving)
    before = before.after(used, snapshot.now_s, snapshot.window_s)
    explained = before.explains(parts.free_cores)
    settled = [
        job
        for job in serving
        if job.started_at_s is None or snapshot.now_s - job.started_at_s >= snapshot.window_s
    ]
    lacks = [] if explained else lacking(settled, parts.services.memory)
    before_them = math.fsum(job.usage.window_cores or 0.0 for job in serving)
    before_them += math.fsum(parts.rest.uses.values())
    left = left_cores(parts.free_cores, before_them)
    hold = stepped(
        before, lacks, trainings, left, snapshot.now_s, snapshot.window_s,
        helped=explained or helps(before, serving),
    )  # fmt: skip
    if hold.steps and _starve(trainings, parts.even_cores):
        hold = let_go(hold, snapshot.now_s, in_vain=True)
    least = {
        job.name: max(job.spec.bounds.floor_cores, _KEPT_RATIO * parts.even_cores * job.spec.weight)
        for job in trainings
    }
    return hold, held(hold, trainings, least)


def _starve(jobs: Sequence[JobView], even_cores: float) -> bool:
    """Whether these jobs together used less than their minimum share over the window."""
    shares = [even_cores * job.spec.weight for job in jobs]
    had_cores = [
        share if job.usage.window_cores is None else job.usage.window_cores
        for job, share in zip(jobs, shares, strict=True)
    ]
    return math.fsum(had_cores) < _KEPT_RATIO * math.fsum(shares)


def _ceilings_alone(
    snapshot: Snapshot, parts: Divided, rule: AdaptiveParameters
) -> dict[str, float | None]:
    """Ceilings that sum to the free cores, for a resource without weights (GPU time).

    The remainder is shared among all jobs (water-filling). In `band` services get none of it: they
    would become too fast and leave their bands.
    """
    serving = parts.services.uses
    uses = {**serving, **parts.trainings.uses, **parts.rest.uses}
    bounds = {job.name: claim(job, snapshot.node.capacity_cores) for job in snapshot.running}
    least = {name: max(uses[name], one.floor_cores) for name, one in bounds.items()}
    # The limit writer rounds ceilings down to a step, and one step can decide a service's target.
    grain = snapshot.node.grain_cores
    whole = {name: math.ceil(least[name] / grain - _ROUNDING) * grain for name in serving}
    if math.fsum({**least, **whole}.values()) <= parts.free_cores:
        least |= whole
    fits = math.fsum(least.values()) <= parts.free_cores
    claims = {}
    for name, one in bounds.items():
        held = rule.mode == "band" and name in serving
        most = least[name] if held or not fits else one.ceiling_cores
        floor = min(least[name], most) if fits else one.floor_cores
        claims[name] = Claim(max(least[name], _LEAST_WEIGHT), floor, most)
    return {**water_fill(parts.free_cores, claims)}


def _wanted_cores(
    training: Sequence[JobView],
    others: Sequence[JobView],
    known: Sequence[TrainingMemory],
    most_cores: float,
) -> float:
    """Cores these jobs could use on an empty node; one of unknown parallelism could use all."""
    usable = {one.name: one.usable_cores for one in known}
    wanted = [usable.get(job.name) for job in training]
    wanted += [untargeted.expected_cores(job, most_cores) for job in others]
    return min(math.fsum(most_cores if one is None else one for one in wanted), most_cores)


def _kept_cores(job: JobView) -> float:
    """Cores reserved for a job that holds CPU, or is about to, but is not running now."""
    if job.runs or not job.state.holds:
        return 0.0
    return max(job.spec.bounds.floor_cores, job.usage.cpu_cores or 0.0)


def _weights(parts: Divided, snapshot: Snapshot) -> dict[str, float]:
    """Weights of the jobs under contention, in cores: one equal share is `even_cores`.

    Until a service comes near its target all jobs weigh as under plain Docker. From then on all
    services have priority but those whose weight is taken back (`Ease`): without it the others
    would be squeezed by the first, and each would cost an update of its own.

    A closed loop weighs by its use, at least an equal share, so that one that cannot meet its
    target does not starve beside trainings. A request of an open loop wants whole cores for a
    moment, however little its service uses on average: an open loop weighs `open_loops` equal
    shares. So does a job without a target that uses little. One that uses more and is not heavy
    precedes trainings, but no service. A greedy service weighs an equal share. Trainings have
    their equal shares as a group, divided by marginal value, and so have heavy jobs without a
    target, by weight; both get more after they fell below their minimum share. Beside heavy jobs
    half of the trainings' weight is divided equally: else these take what the first one leaves.
    """
    own = {job.name: job.spec.weight for job in snapshot.running}
    each, services, heavy = parts.even_cores, parts.services, parts.heavy
    ahead = dict(services.open_loops)
    most = max((AHEAD, *services.open_loops.values()))
    # A service waits for its next request most of the time, a training computes all the time.
    weights = _weighed(services.weights, AHEAD * math.fsum(services.uses.values()))
    for name in weights:
        even = each * own[name] * ahead.get(name, 1.0)
        weights[name] = even if name in ahead else max(weights[name], even)
    middle = min((AHEAD, *(max(weights[name] / (each * own[name]), 1.0) for name in weights)))
    others = {
        name: most if name in parts.light else middle
        for name in parts.rest.weights
        if name not in heavy
    }
    ahead |= others
    weights |= {name: each * own[name] * shares for name, shares in others.items()}
    if not any(one.ease.pressed for one in services.memory):
        weights = {name: each * own[name] for name in weights}
    for name in parts.greedy:
        weights[name] = min(weights[name], each * own[name])
    behind = [job for job in snapshot.running if job.name not in weights]
    least, theirs = each, math.fsum(own[name] for name in ahead)
    if _starve(behind, each) and theirs > 0.0:
        shares = math.fsum(own[name] * many for name, many in ahead.items())
        least *= max(1.0, _KEPT_RATIO * shares / theirs)
    batch = {name: parts.rest.weights[name] for name in heavy}
    training_whole, batch_whole = (
        least * math.fsum(own[name] for name in group) for group in (parts.trainings.weights, batch)
    )
    trainings = _weighed(parts.trainings.weights, training_whole)
    if batch and trainings:
        even = training_whole / len(trainings)
        trainings = {name: (one + even) / 2.0 for name, one in trainings.items()}
    return weights | trainings | _weighed(batch, batch_whole)


def _weighed(weights: Mapping[str, float], whole: float) -> dict[str, float]:
    """The weights scaled to that sum, so that groups of jobs can be compared."""
    before = math.fsum(weights.values())
    if before <= 0:
        return {}
    return {name: max(whole * one / before, _LEAST_WEIGHT) for name, one in weights.items()}

"""The state of the policy `adaptive` for one service: its latency model and its CPU need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlsched.estimate.latency.arrivals import NO_ARRIVALS, Arrivals
from dlsched.estimate.latency.law import LatencyModel, ServiceSample
from dlsched.estimate.latency.update import first, updated
from dlsched.estimate.measured import surely_failing, too_many_fail
from dlsched.estimate.tuning import (
    CLEARLY,
    FEW_REQUESTS,
    FINE,
    LITTLE,
    MARGIN,
    MOSTLY,
    SAMPLE_WEIGHT,
    SETTLED_S,
    SIGMAS,
    THROTTLED_RATIO,
)
from dlsched.model.spec import BAND_RATIO, LatencyTarget
from dlsched.model.state import OFTEN_S, JobView, Snapshot
from dlsched.model.units import render_seconds
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.services.easing import NOT_EASED, Ease, eased


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of more CPU, reverted where it does not help: mean latency before it, and the one
    expected."""

    from_cores: float
    before_s: float
    expected_s: float
    loads: int
    """`LatencyModel.loads` at its start: after a change of load the trial is void."""
    requests: int = 0
    sum_s: float = 0.0
    """Sum of the latencies of these requests since the trial began."""


def begun_trial(
    model: LatencyModel | None, job: JobView, ceiling_cores: float | None
) -> Trial | None:
    """A trial of that ceiling, if the present one binds and the new one is clearly higher."""
    actual = job.actual.cpu_cores
    if model is None or actual is None or not (job.usage.throttled_ratio or 0.0) > THROTTLED_RATIO:
        return None
    if ceiling_cores is not None and ceiling_cores <= CLEARLY * actual:
        return None
    before_s, expected_s = model.mean_s(actual), model.mean_s(ceiling_cores)
    if before_s is None or expected_s is None or expected_s * CLEARLY >= before_s:
        return None
    return Trial(actual, before_s, expected_s, model.loads)


def tried(
    trial: Trial,
    model: LatencyModel,
    sample: ServiceSample,
    useless_until_s: float,
    now_s: float,
    rule: AdaptiveParameters,
) -> tuple[Trial | None, LatencyModel, float]:
    """The trial after these requests (None: it is over), the model, and `useless_until_s`.

    It fails if the mean latency fell by less than half of the expected logarithm, over enough
    requests to tell that from noise.
    """
    if model.loads != trial.loads:
        return None, model, useless_until_s
    requests = trial.requests + sample.sketch.count
    sum_s = trial.sum_s + sample.sketch.sum_s / model.claim_ratio
    expected = math.log(trial.before_s / trial.expected_s)
    needed = (SIGMAS * model.cv / expected) ** 2
    if requests < max(needed, FEW_REQUESTS):
        return replace(trial, requests=requests, sum_s=sum_s), model, useless_until_s
    if sum_s <= 0.0 or math.log(trial.before_s * requests / sum_s) >= MOSTLY * expected:
        return None, model, useless_until_s
    # It does not wait for CPU: its parallelism is at most what it had before the trial.
    fixed_s = sum_s / requests - model.law_core_s / trial.from_cores
    model = replace(model, widest_cores=trial.from_cores, fixed_s=fixed_s)
    return None, model, now_s + rule.retry_s


_KNOWN_REQUESTS, _KNOWN_S = 5.0, 1.5
"""Requests and seconds of observation needed before a ceiling may be derived from the model: the
first of them include the start, and a part of what was done before the first report."""
_DISBELIEVED = "the job's reports are not believed"
_SLACKS, _URGENT = (3.0, 2.0), 4.0
"""Urgency is multiplied by `_URGENT` for each of these thresholds that the slack is below."""
_CONTRADICTED = 2.0
"""Reports beyond so many times what is possible are not believed. Smaller excesses come from late
reports and from other work of the service."""
_CLAIMED = 3.0
"""Latencies of one client that sum to more than so many times the elapsed time are no latencies: a
batch counted as requests, or a wrong unit. Up to that, elapsed time / requests is used instead."""
_LEAST_CORES = 1e-6


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why reports cannot be true, and since when."""

    since_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Want:
    """A ceiling and the mean use under it."""

    ceiling_cores: float
    use_cores: float


@dataclass(frozen=True, slots=True)
class ServiceMemory:
    name: str
    target_s: float
    quantile: float | None
    at_s: float
    """When it last reported requests, or first appeared."""
    attained_core_s: float
    """CPU time that it had used by then."""
    starts: int = 0
    model: LatencyModel | None = None
    least: Want | None = None
    """The CPU that just meets the target; None: unknown, or the target cannot be met."""
    best: Want | None = None
    """The CPU that meets it with a margin, or all that the service can use."""
    best_s: float | None = None
    """The lowest latency that it can reach; None: unknown."""
    hopeless: bool = False
    """Whether no amount of CPU on this node meets its target."""
    useless_until_s: float = 0.0
    """Until when more CPU is assumed not to help, since a trial showed that."""
    trial: Trial | None = None
    kept: bool = True
    """Whether the last decision gave it the CPU for its target."""
    unqueued_s: float | None = None
    """The lowest mean latency of a sample whose requests hardly overlapped, under this load."""
    arrivals: Arrivals = NO_ARRIVALS
    pauses: bool = False
    """Whether arrivals have shown one client that pauses between requests, and never several
    requests were in flight since."""
    urgency: float = 1.0
    """Weight relative to other services that meet their targets; large if it came near its target
    and has little slack."""
    ease: Ease = NOT_EASED
    doubt: Doubt | None = None
    """Set while its latest reports are not believed."""
    limited: bool = False
    """Whether the last decision gave it a ceiling."""
    room_since_s: float | None = None
    """Since when that ceiling is not needed; None: it is, or there is none."""

    @property
    def is_asked(self) -> bool:
        """Whether it may be an open loop, with enough arrivals to estimate its need."""
        return (
            self.may_be_open
            and self.model is not None
            and self.arrivals.requests >= _KNOWN_REQUESTS
        )

    def can_be_placed(self, *, free: bool) -> bool:
        """Whether its need can be estimated; `free`: weights divide, not ceilings."""
        if not free:
            return self.is_known
        return self.arrivals.span_s >= SETTLED_S and (self.is_known or self.is_asked)

    @property
    def asked_cores(self) -> float:
        """Mean cores that the requests of an open loop need while the target is met."""
        if self.model is None:
            return 0.0
        mean_s = self.target_s / self.model.factor(self.quantile)
        work_core_s = self.model.work_core_s
        if self.ease.steps:  # they are in each other's way
            work_core_s = min(work_core_s, self.ease.least_core_s or math.inf)
        return work_core_s * self.arrivals.rate_per_s(mean_s)

    @property
    def is_near_target(self) -> bool:
        """Whether its recent latency is close to, or above, a target that can be met."""
        return not self.hopeless and CLEARLY * self._lately_s > self.target_s

    @property
    def latency_ratio(self) -> float:
        """Its recent latency over its target; 0: none is known."""
        return self._lately_s / self.target_s

    @property
    def _lately_s(self) -> float:
        """Its recent latency; 0: none is known."""
        model = self.model
        return 0.0 if model is None else model.measured_s * model.factor(self.quantile)

    @property
    def may_be_open(self) -> bool:
        """Whether it is not known to be a closed loop of one client."""
        return self.model is None or not self.model.is_one_client

    @property
    def can_be_limited(self) -> bool:
        """Whether it is a closed loop of one client: no queue grows under a ceiling."""
        return self.pauses or not self.may_be_open

    @property
    def is_known(self) -> bool:
        """Whether the model rests on enough requests to derive a ceiling."""
        model = self.model
        if model is None or model.requests < _KNOWN_REQUESTS:
            return False
        return model.span_s >= _KNOWN_S or model.requests >= FEW_REQUESTS


def learned(
    job: JobView,
    target: LatencyTarget,
    known: ServiceMemory | None,
    snapshot: Snapshot,
    rule: AdaptiveParameters,
    *,
    saturated: bool,
) -> ServiceMemory:
    """The memory after this cycle's reports; the same object if there are none."""
    now_s, fresh = snapshot.now_s, job.progress.fresh
    if known is None or known.starts != job.starts:
        # A container that starts again spends CPU that belongs to no request.
        model = None if known is None else known.model
        if known is not None and model is not None and known.useless_until_s:
            model = replace(model, widest_cores=None)  # the failed trial was before this start
        if model is not None:
            model = replace(model, lag=replace(model.lag, used_cores=None))
        begun = ServiceMemory(
            job.name, target.seconds, target.quantile, now_s, job.attained_core_s, job.starts, model
        )
        return begun if model is None else _with_wants(begun, job, snapshot, rule)
    if known.target_s != target.seconds or known.quantile != target.quantile:
        known = replace(
            known,
            target_s=target.seconds,
            quantile=target.quantile,
            hopeless=False,
            trial=None,
            urgency=1.0,
        )
        if not fresh.count:
            return _with_wants(known, job, snapshot, rule)
    if known.useless_until_s and known.useless_until_s <= now_s and known.model is not None:
        model = replace(known.model, widest_cores=None)
        known = replace(known, useless_until_s=0.0, model=model, hopeless=False)
    if not fresh.count:
        return known
    if surely_failing(job.progress.recent, job.max_failed_ratio):
        # Its CPU time is that of failures, too, so that it is no answer's work.
        return replace(known, at_s=now_s, attained_core_s=job.attained_core_s)

    sample = _sample(job, known, now_s, saturated)
    why = _contradiction(job, known, sample, snapshot)
    if why is not None:
        since_s = now_s if known.doubt is None else known.doubt.since_s
        return replace(
            known, at_s=now_s, attained_core_s=job.attained_core_s, doubt=Doubt(since_s, why)
        )
    if known.model is None:
        model = first(sample)
        if model is None:
            return replace(known, at_s=now_s, attained_core_s=job.attained_core_s, doubt=None)
    else:
        model = updated(known.model, sample, target.quantile)
    unqueued_s = _unqueued_s(known, model, sample)
    trial, useless_until_s = known.trial, known.useless_until_s
    if trial is not None and (sample.throttled or sample.free):
        trial, model, useless_until_s = tried(trial, model, sample, useless_until_s, now_s, rule)
    mean_s = fresh.sum_s / fresh.count
    arrivals = known.arrivals.after(fresh.count, mean_s, sample.elapsed_s, sample.in_flight)
    same_load = known.model is not None and known.model.loads == model.loads
    after = replace(
        known,
        at_s=now_s,
        attained_core_s=job.attained_core_s,
        model=model,
        hopeless=known.hopeless and same_load,
        useless_until_s=useless_until_s,
        trial=trial,
        unqueued_s=unqueued_s,
        arrivals=arrivals,
        pauses=((known.pauses and same_load) or arrivals.are_of_one) and model.clients.may_be_one,
        urgency=known.urgency if same_load else 1.0,
        doubt=None,
    )
    if sample.cpu_core_s is not None and snapshot.node.weighs:
        recent = known.ease.recent.after(fresh.count, sample.cpu_core_s, sample.elapsed_s)
        used_ratio = (job.usage.cpu_cores or 0.0) / snapshot.node.capacity_cores
        even_ratio = 1.0 / max(len(snapshot.running), 1)
        ease = replace(known.ease, recent=recent)
        enough = recent.requests >= FEW_REQUESTS or arrivals.span_s >= SETTLED_S
        near = after.is_near_target and enough and job.cpu_helps
        ease = eased(ease, now_s, used_ratio, even_ratio, after.latency_ratio, near=near)
        after = replace(after, ease=ease)
    return _with_wants(after, job, snapshot, rule)


def distrust(
    one: ServiceMemory, job: JobView, now_s: float, rule: AdaptiveParameters, *, is_known: bool
) -> str | None:
    """Why the service must not get a ceiling from its model; None: it may."""
    progress, model, doubt = job.progress, one.model, one.doubt
    reported_s = max(progress.as_of_s or 0.0, job.started_at_s or 0.0)
    if progress.every_s > rule.blind_s:
        every = render_seconds(progress.every_s)
        return f"the job reports only every {every}, too rarely for a limit to be set"
    if job.unheard is not None and now_s - reported_s > rule.blind_s:
        return job.unheard
    if surely_failing(progress.recent, job.max_failed_ratio):
        return too_many_fail(job.max_failed_ratio)
    if doubt is not None and (not is_known or now_s - doubt.since_s > rule.blind_s):
        return f"{_DISBELIEVED}: {doubt.why}"
    if model is None or not is_known:
        return "too few requests yet"
    if model.clients.say_one and model.in_service > _CLAIMED:
        return (
            f"{_DISBELIEVED}: its requests, which it says come one at a time, would have taken "
            "longer than the time that passed"
        )
    return None


def _contradiction(
    job: JobView, known: ServiceMemory, sample: ServiceSample, snapshot: Snapshot
) -> str | None:
    """Why these reports cannot be true; None: they may be."""
    sketch, cores = sample.sketch, snapshot.node.cores
    mean_s = sketch.sum_s / sketch.count
    if job.started_at_s is not None:
        age_s = snapshot.now_s - job.started_at_s
        if mean_s > _CONTRADICTED * max(age_s, OFTEN_S):
            return "the job reports latencies longer than it has been running"
    idle = job.usage.cpu_cores is not None and job.attained_core_s <= known.attained_core_s
    if idle and known.model is None:
        return f"the job reports answers, but has used no {snapshot.resource.time}"
    if (sample.cpu_core_s or 0.0) > _CONTRADICTED * cores * sketch.sum_s:
        spread = " on all cores" if cores > 1 else ""
        return (
            f"the job reports latencies shorter than the {snapshot.resource.time} of its "
            f"requests{spread}"
        )
    return None


def _sample(job: JobView, known: ServiceMemory, now_s: float, saturated: bool) -> ServiceSample:
    """The observation since its last report, and whether one ceiling applied all the time."""
    fresh, usage, ceiling = job.progress.fresh, job.usage, job.actual.cpu_cores
    if ceiling is not None:
        ceiling = max(ceiling, _LEAST_CORES)  # it is a divisor, and a kernel may report 0
    elapsed_s = now_s - known.at_s
    mean_s = fresh.sum_s / fresh.count
    used = usage.cpu_cores
    if used is None:
        used = ceiling
    if usage.throttled_ratio is None:
        throttled = ceiling is not None and MARGIN * (used or 0.0) > ceiling
        free = not throttled
        cpu_core_s = None if used is None else used * elapsed_s
    else:
        throttled = usage.throttled_ratio > THROTTLED_RATIO
        free = usage.throttled_ratio < LITTLE
        cpu_core_s = job.attained_core_s - known.attained_core_s
    if (
        elapsed_s > job.progress.missing_s + 2.0 * mean_s
        or elapsed_s <= 0.0
        or (cpu_core_s or 0.0) <= 0.0
    ):
        cpu_core_s = None
    # Requests that began under another ceiling say nothing about this one, and reports lag.
    lag_s = 0.0 if known.model is None else known.model.lag.seconds
    since_s = known.at_s + SAMPLE_WEIGHT * elapsed_s - lag_s
    mixed = job.changed_at_s is not None and job.changed_at_s + mean_s > since_s
    return ServiceSample(
        fresh,
        cpu_core_s,
        elapsed_s,
        ceiling,
        throttled and not mixed,
        free and not (mixed or saturated),
        not mixed,
        job.progress.in_flight,
        used,
    )


def _with_wants(
    known: ServiceMemory, job: JobView, snapshot: Snapshot, rule: AdaptiveParameters
) -> ServiceMemory:
    """Computes `least` and `best` by the model, or marks the service as hopeless."""
    model = known.model
    if model is None:
        return known
    quantile, target_s = known.quantile, known.target_s
    error = model.error_ratio(quantile)
    if rule.mode == "band":
        aim = rule.band_aim if quantile is None else rule.band_aim_quantile
        aim_s, most_s = aim * target_s, (1.0 + BAND_RATIO - FINE - error) * target_s
    else:
        aim_s, most_s = rule.slo_aim * target_s, (1.0 - FINE - error) * target_s
    most_s = max(most_s, aim_s)
    bounds, room = job.spec.bounds, snapshot.node.capacity_cores
    if bounds.ceiling_cores is not None and bounds.ceiling_cores < room:
        room = bounds.ceiling_cores
    width = model.widest_cores
    widest = room if width is None or room < width else width
    best_s = _reached_s(model, widest, quantile)
    if rule.mode == "slo" and known.may_be_open:
        # Measured latency of an open loop includes queueing: use that of requests alone instead.
        best_s = 0.0 if known.unqueued_s is None else known.unqueued_s * model.factor(quantile)
    # Hysteresis: noise alone neither makes a service hopeless nor ends that.
    slack = 1.0 + FINE + (0.0 if known.hopeless else SIGMAS * error)
    if best_s > slack * most_s:
        hopeless, least, best = True, None, None
    else:
        hopeless = False
        least = _want(model, most_s, quantile, widest, bounds.floor_cores)
        best = _want(model, aim_s, quantile, widest, bounds.floor_cores)
        if not snapshot.node.weighs:  # what it leaves unused of its ceiling is lost
            least, best = (replace(one, use_cores=one.ceiling_cores) for one in (least, best))
    return replace(known, least=least, best=best, best_s=best_s, hopeless=hopeless)


def urged(one: ServiceMemory) -> ServiceMemory:
    """Sets the urgency by the slack once a service has come near its target; before, it is 1.

    Slack is the target over the latency of a request that meets no other, or over its CPU work if
    that was never measured. Urgency only grows until the load or the target changes: unqueued
    latency is measured now and then, and each change of urgency would change limits.
    """
    model = one.model
    if model is None or one.ease.steps or one.ease.is_dearer:
        return one
    if not (one.urgency > 1.0 or one.is_near_target):
        return one
    alone_s = model.work_core_s if one.unqueued_s is None else one.unqueued_s
    slack = one.target_s / model.factor(one.quantile) / alone_s
    urgency = _URGENT ** sum(slack < least for least in _SLACKS)
    return replace(one, urgency=urgency) if urgency > one.urgency else one


def calmed(one: ServiceMemory) -> ServiceMemory:
    """Without urgency."""
    return replace(one, urgency=1.0) if one.urgency > 1.0 else one


def _unqueued_s(known: ServiceMemory, model: LatencyModel, sample: ServiceSample) -> float | None:
    before_s = known.unqueued_s
    if before_s is not None and known.model is not None and known.model.loads != model.loads:
        before_s *= model.work_core_s / known.model.work_core_s
    # On a full host other jobs delay its requests, however few they are.
    if not 0.0 < sample.sketch.sum_s <= MOSTLY * sample.elapsed_s or not sample.free:
        return before_s
    mean_s = sample.sketch.sum_s / sample.sketch.count
    return mean_s if before_s is None else min(mean_s, before_s)


def _reached_s(model: LatencyModel, cores: float, quantile: float | None) -> float:
    mean_s = model.mean_s(cores)
    assert mean_s is not None  # it has a ceiling
    return mean_s * model.factor(quantile)


def _want(
    model: LatencyModel, latency_s: float, quantile: float | None, widest: float, floor: float
) -> Want:
    """The ceiling that brings that latency, limited to what the service can use."""
    cores = model.ceiling_for(latency_s, quantile)
    if cores is None or cores > widest:
        cores, latency_s = MARGIN * widest, _reached_s(model, widest, quantile)
    if cores < floor:
        cores, latency_s = floor, _reached_s(model, min(floor, widest), quantile)
    # Use cannot exceed the ceiling; a model that says so rests on wrong latencies.
    return Want(cores, min(model.use_at(latency_s, quantile), cores))

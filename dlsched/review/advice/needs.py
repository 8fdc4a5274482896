"""What a recorded container needs for its target: a service's least ceiling, a training's for its
deadline, and whether it gets there.

The law of services is that of `trace.fits`: a request waits `overhead_s`, then computes on at
most `threads` cores; an open loop's requests queue. A service that no ceiling ever held does not
show how many threads it has: then the cautious answer is taken, that of a service that can use the
whole node.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlsched.estimate.latency.law import normal_quantile
from dlsched.estimate.learning import LEVEL_POINTS, Learnt, learnt, thinned
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Tier
from dlsched.model.units import CORES_MIN, render_cores, render_quantile, render_seconds
from dlsched.review.advice.result import LEAST_REQUESTS, AdvisedLimits, MeasuredTarget
from dlsched.simulation.trace.fits import Law, LoadPhase, service_law, step_work, threads
from dlsched.simulation.trace.observed import ObservedJob, Window

# ------------------------------------------------------------------ services

AIM_RATIO = 0.95
"""Part of the target that is aimed at: the fits err by some per cent."""
AIM_FULL_RATIO = 0.85
"""The same where all was measured on a full node."""
_FULL = (
    "the node was full all the time, so the job's waiting cannot be separated from its "
    "computing: record the job while the node has idle CPU"
)
_LEAST_WORK_RATIO = 0.1
"""Part of a latency that is computation at least, so that its quantile stays finite."""
_FULL_LOAD = 0.98
"""Part of the time that one server may be busy: beyond it the queue has no end."""
_BISECTIONS = 40
_APART = 1.15
"""Two answers that differ by less are one."""


@dataclass(frozen=True, slots=True)
class _Service:
    """A law with the tail of its latencies."""

    law: Law
    quantile: float | None
    factor: float
    """The quantile of a request's work over its mean, in a closed loop; 1 for a mean."""

    def latency_s(self, phase: LoadPhase, cores: float) -> float:
        """The latency of the target's kind at that ceiling; infinite: its queue has no end."""
        law = self.law
        computes_s = phase.work_core_s / min(cores, law.threads)
        if law.clients is not None:
            return law.overhead_s + self.factor * computes_s
        pace_s = law.overhead_s + computes_s
        load = pace_s * phase.rate_per_s
        if load >= _FULL_LOAD:
            return math.inf
        # One server with Poisson arrivals: the mean wait, and the tail of those who wait.
        wait_s = load * pace_s * (1.0 + law.noise**2) / (2.0 * (1.0 - load))
        if self.quantile is None:
            return pace_s + wait_s
        spread = math.sqrt(math.log1p(law.noise**2))
        z, _ = normal_quantile(self.quantile)
        alone_s = pace_s * math.exp(z * spread - spread * spread / 2.0)
        beyond = load / (1.0 - self.quantile)
        # Quantiles of two parts add up to at least the quantile of their sum.
        return alone_s + (wait_s / load * math.log(beyond) if beyond > 1.0 else 0.0)

    def busiest(self, cores: float) -> LoadPhase:
        """The phase with the highest latency at that ceiling."""
        return max(self.law.phases, key=lambda one: (self.latency_s(one, cores), one.work_core_s))

    def least_cores(self, seconds: float, most: float) -> float | None:
        """The least ceiling that keeps that latency in all phases; None: not even `most`."""

        def keeps(cores: float) -> bool:
            return all(self.latency_s(one, cores) <= seconds for one in self.law.phases)

        if not keeps(most):
            return None
        low, high = 0.0, most
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2.0
            low, high = (low, middle) if keeps(middle) else (middle, high)
        return max(high, CORES_MIN)


def service_need(
    job: ObservedJob,
    target: LatencyTarget,
    factor: float,
    cores: float,
    room_cores: float,
    measured: MeasuredTarget | None,
) -> AdvisedLimits:
    """The need of this service on a node of `cores`, `room_cores` of which containers may use."""
    law = service_law(job.windows, cores)
    if law is None:
        if measured is None:
            return AdvisedLimits(
                notes=("no request was recorded: only the job's CPU use is known",)
            )
        return AdvisedLimits(
            notes=("too few requests were recorded to know what each one computes",)
        )
    one = _Service(law, target.quantile, _of_work(factor, law, job.windows))
    free = any(window.free for window in job.windows if window.count)
    parallel = one if law.known else _as_parallel(one, cores, free=free)
    # What it would at best need, and at worst: the same where its threads are known.
    better, worse = (one, parallel) if free else (parallel, one)
    useful = law.threads if law.known else None
    # On a full node a request's wait cannot be separated from its turn on a CPU.
    hidden = all(window.contended for window in job.windows if window.count)
    aim_s = (AIM_FULL_RATIO if hidden else AIM_RATIO) * target.seconds
    likely = _least(better, aim_s, target.seconds, room_cores)
    if likely is None:
        why = _why_slow(better, target, room_cores, measured)
        return AdvisedLimits(None, useful, why)
    surely = _least(worse, aim_s, target.seconds, room_cores)
    notes = [_FULL] if hidden else []
    cautious: float | None = None
    if law.known:
        pass
    elif free:
        surely = room_cores if surely is None else surely
        cautious = surely if surely > _APART * likely else None
        likely = likely if cautious is not None else surely
    elif surely is None:
        had = render_cores(max(window.used_cores for window in job.windows if window.count))
        notes.append(f"the job never had more than {had}: whether it can use more is not known")
    if measured is not None and measured.requests < LEAST_REQUESTS:
        notes.append(f"only {measured.requests} requests were recorded")
    if len(law.phases) > 1:
        notes.append(f"the load had {len(law.phases)} levels: this limit is for the busiest")
    if law.clients is not None and law.clients > 1.0:
        notes.append(
            f"{law.clients:.1f} requests were under way concurrently: they share the limit"
        )
    assumed = not (law.known or free) and surely is None
    need = AdvisedLimits(likely, useful, None, assumed, hidden, tuple(notes))
    if cautious is None:
        return need
    return replace(need, cores=cautious, likely_cores=likely)


def _of_work(factor: float, law: Law, windows: Sequence[Window]) -> float:
    """The same quantile over the mean of the work alone: waits do not vary with it."""
    count = sum(one.count for one in windows)
    mean_s = math.fsum(one.latency_s for one in windows) / count if count else 0.0
    computes_s = max(mean_s - law.overhead_s, _LEAST_WORK_RATIO * mean_s)
    return max(1.0, (factor * mean_s - law.overhead_s) / computes_s) if computes_s else factor


def _least(one: _Service, aim_s: float, seconds: float, room_cores: float) -> float | None:
    """The least ceiling with a margin; without one, if that is out of reach. None: none."""
    found = one.least_cores(aim_s, room_cores)
    if found is not None:
        return found
    found = one.least_cores(seconds, room_cores)
    # That near, every core counts.
    return None if found is None else max(found, min(one.law.threads, room_cores))


def _as_parallel(one: _Service, cores: float, *, free: bool) -> _Service:
    """The service with as many threads as the node has cores, at the paces that were measured: a
    free one has computed so much faster, and waited for the rest."""
    law = one.law
    most = max(cores, law.threads)
    overhead_s = law.overhead_s
    if free:
        overhead_s += law.phases[0].work_core_s * (1.0 / law.threads - 1.0 / most)
    return replace(one, law=replace(law, threads=most, overhead_s=overhead_s))


def _why_slow(
    one: _Service, target: LatencyTarget, room_cores: float, measured: MeasuredTarget | None
) -> str:
    kind = render_quantile(target.quantile)
    law, asked = one.law, render_seconds(target.seconds)
    phase = one.busiest(room_cores)
    best_s = one.latency_s(phase, room_cores)
    cores = render_cores(min(room_cores, law.threads))
    if law.clients is None:
        alone = replace(one, law=replace(law, phases=(replace(phase, rate_per_s=1e-9),)))
        alone_s = alone.latency_s(alone.law.phases[0], room_cores)
        if alone_s <= target.seconds:
            return (
                f"{phase.rate_per_s:.3g} requests/s are too many to be answered in time one after "
                f"the other, even with {cores}: the service needs more workers or replicas"
            )
        best_s = alone_s
    fixed_s = law.overhead_s
    cause = (
        f", of which {render_seconds(fixed_s)} is not spent computing"
        if fixed_s > 0.5 * best_s
        else ""
    )
    when = ""
    if measured is not None and measured.seconds < best_s:
        if len(law.phases) > 1:
            when = " at its busiest"
        else:  # what the record shows is no worse than the best
            best_s = measured.seconds
    best = render_seconds(best_s)
    return (
        f"with all cores that the job can use ({cores}) its {kind} is {best}{when}{cause}; the "
        f"target is {asked}"
    )


# ------------------------------------------------------------------ trainings

_HORIZON = 100.0
"""How far ahead its curve is read, in multiples of the steps so far."""
_HOPELESS = 0.05
"""Below this chance a value counts as out of reach."""
_SURE = 0.5
"""A level is known where its interval is narrower than this part of the way to the value."""

Values = list[tuple[int, float]]


def training_need(job: ObservedJob, target: AccuracyTarget, room_cores: float) -> AdvisedLimits:
    """The need of this training on a node where containers may use so many cores."""
    used = threads(job.windows)
    useful = None if used is None else min(used[0], room_cores)
    notes = []
    if used is not None and not used[1]:
        had = max(used[0], *(window.used_cores for window in job.windows))
        notes.append(f"a limit always held the job back: it can use {render_cores(had)}, or more")
    values = job.values.get(target.metric, [])
    if not values:
        return AdvisedLimits(None, useful, notes=(*notes, f"no {target.metric} was recorded"))
    curve = None if _reached(job, Tier.FINISH) else _curve(values, target)
    out_of_reach = _why_not(job, target, values, curve)
    if out_of_reach is not None:
        return AdvisedLimits(None, useful, out_of_reach, notes=tuple(notes))
    if target.deadline_s is None:
        return AdvisedLimits(None, useful, notes=tuple(notes))
    work_core_s = _work_core_s(job, target, values, curve)
    if work_core_s is None:
        unknown = "the record shows too little of the job's work to know what it needs"
        return AdvisedLimits(None, useful, notes=(*notes, unknown))
    cores = work_core_s / target.deadline_s
    most = room_cores if used is None or not used[1] else min(used[0], room_cores)
    if cores > most and _delivered_in_time(job, target.deadline_s):
        cores = most
    if cores > most:
        return AdvisedLimits(
            None,
            useful,
            f"{target.metric} {target.deliver:g} takes {render_seconds(work_core_s / most)} even "
            f"with all cores that the job can use ({render_cores(most)}); the deadline is "
            f"{render_seconds(target.deadline_s)}",
            notes=tuple(notes),
        )
    return AdvisedLimits(cores, useful, notes=tuple(notes))


def progress_text(job: ObservedJob, target: AccuracyTarget) -> str:
    """How far it came, such as `map 0.551 at step 31`."""
    values = job.values.get(target.metric, [])
    return f"{target.metric} {values[-1][1]:.4g} at step {values[-1][0]}" if values else ""


def _reached(job: ObservedJob, tier: Tier) -> bool:
    tiers = None if job.last is None else job.last.tiers
    if tiers is None:
        return False
    return (tiers.delivered if tier is Tier.DELIVER else tiers.finished) is not None


def _delivered_in_time(job: ObservedJob, deadline_s: float) -> bool:
    """Whether the record itself shows that the deadline can be met."""
    tiers = None if job.last is None else job.last.tiers
    if tiers is None or tiers.delivered is None or job.started_s is None:
        return False
    return tiers.delivered.at_s - job.started_s <= deadline_s


def _curve(values: Values, target: AccuracyTarget) -> Learnt | None:
    points = []
    for step, group in itertools.groupby(sorted(values), key=lambda one: one[0]):
        found = [value for _, value in group]
        points.append((float(step), sum(found) / len(found), len(found)))
    last = points[-1][0]
    return learnt(
        thinned(points),
        (target.deliver, target.finish),
        max(1.0, _HORIZON * last),
        after_steps=(last, last),
    )


def _why_not(
    job: ObservedJob, target: AccuracyTarget, values: Values, curve: Learnt | None
) -> str | None:
    falls = target.finish < target.deliver
    best = (min if falls else max)(value for _, value in values)
    for tier in Tier:
        if _reached(job, tier):
            continue
        wanted = f"{target.metric} {target.value_of(tier):g} ({tier.value})"
        if job.finished:
            return f"the job ended at step {values[-1][0]} with {best:.4g} at best, not {wanted}"
        if curve is None or len(values) < LEVEL_POINTS:
            continue
        reach = curve.deliver if tier is Tier.DELIVER else curve.finish
        low, high = sorted((curve.low_level, curve.high_level))
        away = abs(target.value_of(tier) - curve.level)
        if reach.chance < _HOPELESS and high - low < _SURE * away:
            return (
                f"the learning curve levels off at {curve.level:.4g} ({low:.4g} to {high:.4g}): "
                f"{wanted} is out of reach at any limit"
            )
    return None


def _work_core_s(
    job: ObservedJob, target: AccuracyTarget, values: Values, curve: Learnt | None
) -> float | None:
    """CPU time from its start to `deliver`."""
    fitted = step_work(job.attempts)
    if fitted is None:
        return None
    falls = target.finish < target.deliver
    sign = -1.0 if falls else 1.0
    steps = [float(step) for step, value in values if sign * (value - target.deliver) >= 0]
    if not steps and curve is None:
        return None
    step = min(steps) if steps else curve.deliver.steps if curve is not None else 0.0
    return fitted[1] + step * fitted[0]

"""The least ceiling at which a recorded service meets its latency target.

The law is that of `trace.fitting`: a request waits `overhead_s`, then computes on at most `threads`
cores; an open loop's requests queue. A service that no ceiling ever held does not show how many
threads it has: then the cautious answer is taken, that of a service that can use the whole node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlsched.estimate.latency.law import normal_quantile
from dlsched.model.spec import LatencyTarget
from dlsched.model.units import CORES_MIN, render_cores, render_quantile, render_seconds
from dlsched.simulation.advice.result import LEAST_REQUESTS, AdvisedLimits, MeasuredTarget
from dlsched.simulation.trace.fitting import Law, LoadPhase, service_law
from dlsched.simulation.trace.observed import ObservedJob, Window

AIM_RATIO = 0.95
"""Part of the target that is aimed at: the fits err by some per cent."""
AIM_FULL_RATIO = 0.85
"""The same where all was measured on a full node."""
_FULL = (
    "the node was full all the time, so its waiting cannot be separated from its computing: "
    "observe it with idle CPU"
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
            return AdvisedLimits(notes=("no request of it was read: only its use is known",))
        return AdvisedLimits(notes=("its requests were too few to tell what each one computes",))
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
        why = _why_not(better, target, room_cores, measured)
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
        notes.append(f"it never had more than {had}: that it can use more is not known")
    if measured is not None and measured.requests < LEAST_REQUESTS:
        notes.append(f"only {measured.requests} requests of it were read")
    if len(law.phases) > 1:
        notes.append(f"its load had {len(law.phases)} levels: this is for the busiest")
    if law.clients is not None and law.clients > 1.0:
        notes.append(f"{law.clients:.1f} requests were under way at once: they share the limit")
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


def _why_not(
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
                f"{phase.rate_per_s:.3g} requests/s are more than one after the other can be "
                f"answered in time, with {cores} too: it needs more workers or replicas"
            )
        best_s = alone_s
    fixed_s = law.overhead_s
    cause = (
        f", {render_seconds(fixed_s)} of which is no computation" if fixed_s > 0.5 * best_s else ""
    )
    when = ""
    if measured is not None and measured.seconds < best_s:
        if len(law.phases) > 1:
            when = " at its busiest"
        else:  # what the record shows is no worse than the best
            best_s = measured.seconds
    best = render_seconds(best_s)
    return f"with all that it can use ({cores}) its {kind} is {best}{when}{cause}, not {asked}"

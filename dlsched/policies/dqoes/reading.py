"""What one job's window says about its target, for the policy `dqoes`.

Owns the judgement whether there is enough to judge by. It must not decide, nor use a measurement
that was not made wholly under the limit that it judges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.estimate.latency.law import Clients
from dlsched.estimate.sketch import cv, measured_s
from dlsched.estimate.tuning import MOSTLY
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import OFTEN_S, JobView, Snapshot
from dlsched.model.units import render_seconds
from dlsched.policies.dqoes.parameters import DqoesParameters
from dlsched.policies.published.dqoes import Standing, standing

_QUANTILE_NOISE = 3.0
"""A quantile's standard error over the mean's. Of a log-normal's p95 it is 2.1; of ten requests
more. With 1.5 there were three times the updates, and one service less of ten was in its band."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One job's measurements against its target; the defaults say nothing."""

    text: str
    standing: Standing | None = None
    base_cores: float = 0.0
    """What the measured latency was reached with: the limit, or the usage where that is less."""
    deviation: float = 0.0
    """Logarithm of measured over aim: above 0 is slow."""
    slack: float = 0.0
    """Deviation that is left alone: noise, or near enough."""
    binds: bool = False
    """Whether the limit holds the job back."""
    requests: int = 0
    in_service: float = 0.0
    """Requests in service at once, in the mean."""

    @property
    def is_denied(self) -> bool:
        """Late, and not for its limit."""
        return self.standing is Standing.WORSE and not self.binds


def read(
    job: JobView, target: LatencyTarget, snapshot: Snapshot, rule: DqoesParameters, *, full: bool
) -> Reading:
    """What the requests made wholly under the present limit say, if they are enough.

    `full`: the host has no idle CPU left.
    """
    window = job.progress.window
    aim_s = rule.aim_ratio * target.seconds
    since = [at for at in (job.started_at_s, job.changed_at_s) if at is not None]
    elapsed_s = snapshot.window_s
    if since:
        elapsed_s = min(max(snapshot.now_s - max(since), 0.0), snapshot.window_s)
    p = measured_s(window, target.quantile) or 0.0
    # A request unanswered for that long counts as if it were answered now: hung is slow.
    hung_s = min(job.progress.oldest_s, elapsed_s)
    p = max(p, (window.sum_s + hung_s) / (window.count + 1), 1e-6)
    needed = rule.min_requests
    if target.quantile is not None:
        needed = max(needed, math.ceil(0.5 / max(1 - target.quantile, 0.01)))
    late = p > 2 * aim_s  # so far off that one request is enough
    if elapsed_s < rule.min_window_s or (window.count < needed and not late):
        return Reading(f"{window.count} requests in {elapsed_s:.0f} s, too few to judge")

    limit, used = job.actual.cpu_cores, job.usage.window_cores
    throttled = (job.usage.throttled_ratio or 0.0) > rule.throttled_ratio
    # Cores while it serves, by Little's law: mean use over the part of time with a request in.
    in_service = (window.sum_s + p) / max(elapsed_s, 1e-9)
    serving = None if used is None else used / min(max(in_service, 0.01), 1.0)
    if serving is None:
        serving = limit  # unread: taken to use all that it may
    if serving is None:
        return Reading("neither limit nor usage is known")
    # On a full host a job that gets less than its limit has lost it to others.
    bound = 0.9 if full else rule.binding_ratio
    binds = limit is not None and (throttled or serving > bound * limit)
    base = serving if limit is None else limit if binds else min(serving, limit)
    noise = _QUANTILE_NOISE if target.quantile is not None else 1.0
    noise *= rule.noise_sigmas * (cv(window) or 0.0) / math.sqrt(max(window.count, 1))
    status = standing(aim_s, aim_s - p, rule.alpha)
    side = {"G": "under", "S": "near", "B": "over"}[status]
    return Reading(
        text=f"p {render_seconds(p)} {side} target {render_seconds(target.seconds)} "
        f"({status}, {window.count} requests)",
        standing=status,
        base_cores=base,
        deviation=math.log(p / aim_s),
        slack=max(rule.inner_ratio, noise),
        binds=binds,
        requests=window.count,
        in_service=in_service,
    )


def clients(job: JobView, reading: Reading, before: Clients | None) -> Clients | None:
    """Who sends the job's requests, as far as its reports have told; None: they have not."""
    if reading.standing is None:
        return before
    # Many reporters tell none in flight, ever: then Little's law says how many there are.
    in_flight = job.progress.in_flight or round(reading.in_service)
    periods = job.usage.throttled_ratio
    held = reading.binds if periods is None else periods > MOSTLY
    known = before or Clients(float(in_flight == 1), float(held))
    return known.after(in_flight, OFTEN_S, throttled=held, in_service=reading.in_service)


def is_saturated(snapshot: Snapshot, rule: DqoesParameters) -> bool:
    """Whether the host has no idle CPU left."""
    used = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.running)
    return used + (snapshot.node.foreign_cores or 0.0) > rule.saturated_ratio * snapshot.node.cores

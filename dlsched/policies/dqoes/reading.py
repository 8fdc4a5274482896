"""Compares one job's measurements with its target, for the policy `dqoes`.

It only uses measurements made entirely under the limit that it judges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.estimate.latency.law import Clients
from dlsched.estimate.sketch import against_target_s, cv
from dlsched.estimate.tuning import MOSTLY
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import OFTEN_S, JobView, Snapshot
from dlsched.model.units import render_seconds
from dlsched.policies.dqoes.parameters import DqoesParameters
from dlsched.policies.published.dqoes import QoeClass, qoe_class

_QUANTILE_NOISE = 3.0
"""Standard error of a quantile over that of the mean: 2.1 for p95 of a log-normal, more for ten
requests. With 1.5 there were three times the updates, and one service in ten fewer in its band."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One job's measurements relative to its target; by default there are none."""

    text: str
    qoe_class: QoeClass | None = None
    base_cores: float = 0.0
    """Cores behind the measured latency: the limit, or the usage where that is less."""
    deviation: float = 0.0
    """Logarithm of measured over aim: above 0 is slow."""
    slack: float = 0.0
    """Dead band of the deviation."""
    binds: bool = False
    requests: int = 0
    in_service: float = 0.0

    @property
    def is_denied(self) -> bool:
        """Whether the job is slower than its band, but not because of its limit."""
        return self.qoe_class is QoeClass.WORSE and not self.binds


def read(
    job: JobView, target: LatencyTarget, snapshot: Snapshot, rule: DqoesParameters, *, full: bool
) -> Reading:
    """The reading from requests made entirely under the present limit, empty if they are too few.
    `full`: the host has no idle CPU left."""
    window = job.progress.window
    aim_s = rule.aim_ratio * target.seconds
    since = [at for at in (job.started_at_s, job.changed_at_s) if at is not None]
    elapsed_s = snapshot.window_s
    if since:
        elapsed_s = min(max(snapshot.now_s - max(since), 0.0), snapshot.window_s)
    p = against_target_s(window, target) or 0.0
    # The oldest unanswered request counts as if it were answered now: a hung service is slow.
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
    # Cores while it serves, by Little's law: mean use over the fraction of time with a request.
    in_service = (window.sum_s + p) / max(elapsed_s, 1e-9)
    serving = None if used is None else used / min(max(in_service, 0.01), 1.0)
    if serving is None:
        serving = limit  # unread: assumed to use its whole limit
    if serving is None:
        return Reading("neither limit nor usage is known")
    # On a full host a job that gets less than its limit has lost it to others.
    bound = 0.9 if full else rule.binding_ratio
    binds = limit is not None and (throttled or serving > bound * limit)
    base = serving if limit is None else limit if binds else min(serving, limit)
    noise = _QUANTILE_NOISE if target.quantile is not None else 1.0
    noise *= rule.noise_sigmas * (cv(window) or 0.0) / math.sqrt(max(window.count, 1))
    status = qoe_class(aim_s, aim_s - p, rule.alpha)
    side = {"G": "under", "S": "near", "B": "over"}[status]
    return Reading(
        text=f"p {render_seconds(p)} {side} target {render_seconds(target.seconds)} "
        f"({status}, {window.count} requests)",
        qoe_class=status,
        base_cores=base,
        deviation=math.log(p / aim_s),
        slack=max(rule.inner_ratio, noise),
        binds=binds,
        requests=window.count,
        in_service=in_service,
    )


def clients(job: JobView, reading: Reading, before: Clients | None) -> Clients | None:
    """The evidence on the job's clients after this reading; None: no reading yet."""
    if reading.qoe_class is None:
        return before
    # Many reporters never report requests in flight: Little's law gives their number then.
    in_flight = job.progress.in_flight or round(reading.in_service)
    periods = job.usage.throttled_ratio
    held = reading.binds if periods is None else periods > MOSTLY
    known = before or Clients(float(in_flight == 1), float(held))
    return known.after(in_flight, OFTEN_S, throttled=held, in_service=reading.in_service)


def is_saturated(snapshot: Snapshot, rule: DqoesParameters) -> bool:
    """Whether the host has no idle CPU left."""
    used = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.running)
    return used + (snapshot.node.foreign_cores or 0.0) > rule.saturated_ratio * snapshot.node.cores

"""Services that take more CPU than they are known to need: they weigh an equal share.

As under plain Docker, where others that may be open loops weigh more."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlsched.estimate.tuning import CLEARLY, MOSTLY, SETTLED_S
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.services.divide import ServiceMemory


def greedy(
    snapshot: Snapshot,
    services: Sequence[ServiceMemory],
    before: Collection[str],
    even_cores: float,
) -> tuple[str, ...]:
    """The names of services that use more than half of an equal share, while no answer of theirs is
    known, or while they are far from their targets and need much less, as a loop of several clients
    without pauses does. One that was greedy `before` still is until it comes near its target."""
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

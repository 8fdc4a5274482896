"""Jobs without a target under the policy `adaptive`: a fair share, and idle CPU besides.

Under contention only those yield that use nearly all that they can have: what one wants that uses
less than an equal share is little at any weight, and its requests would wait behind those of
services with a target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dlsched.estimate.tuning import CLEARLY, LITTLE
from dlsched.model.resource import CPU, Resource
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.placed import Placed
from dlsched.policies.fair_share import Claim, water_fill


def place(
    jobs: Sequence[JobView], shares: Mapping[str, float], resource: Resource = CPU
) -> Placed[None]:
    """Gives each job no ceiling, and its fair share (`shares`, cores by job) as weight."""
    uses = {job.name: expected_cores(job, shares[job.name]) for job in jobs}
    whole = resource.amount(math.fsum(shares.values()), ".2f")
    return Placed(
        limits=dict.fromkeys(uses),
        uses=uses,
        weights=dict(shares),
        why={
            job.name: f"no target: its fair share is {shares[job.name]:.3f} of {whole}; "
            f"it may also use idle {resource.name}"
            for job in jobs
        },
    )


def heavy(
    others: Sequence[JobView],
    before: Collection[str],
    snapshot: Snapshot,
    free_cores: float,
    even_cores: float,
    *,
    full: bool,
) -> tuple[str, ...]:
    """Those of the jobs without a target (`others`) that use nearly all that they can have, if that
    is more than an equal share (`even_cores` for weight 1), and not for requests.

    What one can have is its part of `free_cores` if it wanted all, and the other running jobs what
    they use. One that was heavy `before` stays so while the host is `full`: its use then does not
    show what it would take.
    """

    def can_have_cores(name: str) -> float:
        claims = {
            one.name: Claim(one.spec.weight, 0.0, _used_cores(one)) for one in snapshot.running
        }
        claims[name] = replace(claims[name], ceiling_cores=free_cores)
        return water_fill(free_cores, claims)[name]

    def is_heavy(job: JobView) -> bool:
        if _serves(job, snapshot):
            return False
        was, used_cores = job.name in before, _used_cores(job)
        if was and full:
            return True
        even = even_cores * job.spec.weight * (1.0 if was else CLEARLY)
        nearly = CLEARLY * CLEARLY if was else CLEARLY
        return used_cores > even and used_cores > can_have_cores(job.name) / nearly

    return tuple(job.name for job in others if is_heavy(job))


def _serves(job: JobView, snapshot: Snapshot) -> bool:
    """Whether its measured requests, each on all cores, can be what it uses CPU for. Those of a
    notebook or a dashboard are not."""
    progress = job.progress
    open_requests = progress.recent.sum_s / snapshot.window_s + progress.in_flight
    return open_requests > 0 and open_requests * snapshot.node.cores >= _used_cores(job)


def takes_little(job: JobView, even_cores: float) -> bool:
    """Whether it uses no more than an equal share, as much as plain Docker would give it."""
    return _used_cores(job) <= even_cores * job.spec.weight


def _used_cores(job: JobView) -> float:
    return job.usage.window_cores or 0.0


def expected_cores(job: JobView, share_cores: float) -> float:
    """Mean cores that the job will use of its share: all of it while its limit binds."""
    used, limit = job.usage.cpu_cores, job.actual.cpu_cores
    if used is None or (job.usage.throttled_ratio or 0.0) > LITTLE:
        return share_cores
    if limit is not None and used >= limit / CLEARLY:
        return share_cores
    return min(share_cores, max(CLEARLY * used, job.spec.bounds.floor_cores))

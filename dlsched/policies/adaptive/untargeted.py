"""Jobs without a target under the policy `adaptive`: a fair share, and idle CPU besides.

Under contention only those yield that use nearly all that they can have. What others want that use
little of an equal share is little at any weight: their requests need not wait behind those of
services with a target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from dlsched.estimate.tuning import CLEARLY, LITTLE, MOSTLY
from dlsched.model.resource import CPU, Resource
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.placed import Placed


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
    trainings: Sequence[JobView],
    before: Collection[str],
    snapshot: Snapshot,
    free_cores: float,
    even_cores: float,
) -> tuple[str, ...]:
    """Those of the jobs without a target (`others`) that use nearly all that they can have, and not
    for requests.

    They can have equal shares, by weight, of what is left of `free_cores`: by jobs that serve
    requests, and by those that use clearly less. All `trainings` want such a share, too. One that
    was not heavy `before` can have an equal share of the node, `even_cores`, in any case.
    """
    hungry = [job for job in others if not _serves(job, snapshot)]
    weight = math.fsum(job.spec.weight for job in trainings)
    among = {job.name for job in (*hungry, *trainings)}
    left_cores = free_cores - math.fsum(
        _used_cores(job) for job in snapshot.running if job.name not in among
    )

    def is_sated(job: JobView, share_cores: float) -> bool:
        if job.name in before:
            return CLEARLY * CLEARLY * _used_cores(job) < share_cores * job.spec.weight
        return CLEARLY * _used_cores(job) < max(share_cores, even_cores) * job.spec.weight

    while hungry:
        share_cores = left_cores / (weight + math.fsum(job.spec.weight for job in hungry))
        sated = [job for job in hungry if is_sated(job, share_cores)]
        if not sated:
            break
        left_cores -= math.fsum(map(_used_cores, sated))
        hungry = [job for job in hungry if job not in sated]
    return tuple(job.name for job in hungry)


def _serves(job: JobView, snapshot: Snapshot) -> bool:
    """Whether its measured requests, each on all cores, can be what it uses CPU for. Those of a
    notebook or a dashboard are not."""
    progress = job.progress
    open_requests = progress.recent.sum_s / snapshot.window_s + progress.in_flight
    return open_requests > 0 and open_requests * snapshot.node.cores >= _used_cores(job)


def takes_little(
    others: Sequence[JobView], before: Collection[str], even_cores: float
) -> tuple[str, ...]:
    """Those of the jobs without a target that use at most half of an equal share, or slightly more
    if they did `before`: what they want is little at any weight, in a burst too."""

    def most_cores(job: JobView) -> float:
        ratio = MOSTLY * (CLEARLY if job.name in before else 1.0)
        return ratio * even_cores * job.spec.weight

    return tuple(job.name for job in others if _used_cores(job) <= most_cores(job))


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

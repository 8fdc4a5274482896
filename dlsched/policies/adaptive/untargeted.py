"""Jobs without a target under the policy `adaptive`: a fair share, and idle CPU besides.

Under contention only those yield that use nearly all that they can have. What others want that use
little of an equal share is little at any weight: their requests need not wait behind those of
services with a target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from dlsched.estimate.tuning import CLEARLY, FINE, FULL_RATIO, LITTLE, MOSTLY
from dlsched.model.resource import CPU, Resource
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.adaptive.placed import Placed


def place(
    jobs: Sequence[JobView],
    shares: Mapping[str, float],
    behind: Collection[str] = (),
    little: Collection[str] = (),
    resource: Resource = CPU,
) -> Placed[None]:
    """Gives each job no ceiling, and its fair share (`shares`, cores by job) as weight. `behind`:
    the heavy ones, `little`: those that take little."""
    uses = {job.name: expected_cores(job, shares[job.name]) for job in jobs}
    whole = resource.amount(math.fsum(shares.values()), ".2f")
    idle = f"it may also use idle {resource.name}"

    def why(name: str) -> str:
        if name in behind:
            return f"no target, and the job uses nearly all its share: services come first; {idle}"
        if name in little:
            return f"no target, and the job uses little: it comes first, as services do; {idle}"
        return f"no target: the job's fair share is {shares[name]:.3f} of {whole}; {idle}"

    return Placed(
        limits=dict.fromkeys(uses),
        uses=uses,
        weights=dict(shares),
        why={job.name: why(job.name) for job in jobs},
    )


def heavy(
    others: Sequence[JobView],
    trainings: Sequence[JobView],
    before: Mapping[str, float],
    snapshot: Snapshot,
    free_cores: float,
    even_cores: float,
) -> dict[str, float]:
    """Those of the jobs without a target (`others`) that use nearly all that they can have, and not
    for requests; and until when they stay so: for as long again as their mean use was measured.

    They can have equal shares, by weight, of what is left of `free_cores`: by jobs that serve
    requests, and by those that use less. All `trainings` want such a share, too. One that was not
    heavy `before` can have an equal share of the node, `even_cores`, in any case.
    """
    unread = {job.name for job in others if job.usage.window_cores is None}
    hungry = [job for job in others if job.name not in unread and not _serves(job, snapshot)]
    stay = {job.name for job in hungry if before.get(job.name, 0.0) > snapshot.now_s} | unread
    weight = math.fsum(job.spec.weight for job in trainings)
    among = {job.name for job in (*hungry, *trainings)}
    all_cores = math.fsum(map(_used_cores, snapshot.running))
    if all_cores >= FULL_RATIO * free_cores:
        free_cores = all_cores  # the kernel cannot hand out the rest
    left_cores = free_cores - math.fsum(
        _used_cores(job) for job in snapshot.running if job.name not in among
    )
    # Beside processes outside, what jobs can have is a guess.
    foreign_cores = snapshot.node.foreign_cores or 0.0
    room = CLEARLY if foreign_cores > LITTLE * snapshot.node.cores else 1.0 + FINE

    def is_sated(job: JobView, share_cores: float) -> bool:
        if job.name in before:
            return CLEARLY * room * _used_cores(job) < share_cores * job.spec.weight
        return room * _used_cores(job) < max(share_cores, even_cores) * job.spec.weight

    while hungry:
        share_cores = left_cores / (weight + math.fsum(job.spec.weight for job in hungry))
        sated = [job for job in hungry if is_sated(job, share_cores)]
        if not sated:
            break
        left_cores -= math.fsum(map(_used_cores, sated))
        hungry = [job for job in hungry if job not in sated]
    found = {name: until_s for name, until_s in before.items() if name in stay}
    now_s, window_s = snapshot.now_s, snapshot.window_s
    ages_s = {job.name: now_s - (job.started_at_s or 0.0) for job in hungry}
    return found | {name: now_s + min(window_s, age_s) for name, age_s in ages_s.items()}


def _serves(job: JobView, snapshot: Snapshot) -> bool:
    """Whether its measured requests, each on all cores, can be what it uses CPU for. Those of a
    notebook or a dashboard are not; nor is one that has been open for longer than the window, such
    as a stream of events."""
    progress, over_s = job.progress, snapshot.window_s
    open_s = progress.recent.sum_s
    if progress.oldest_s < over_s:
        open_s += progress.in_flight * progress.oldest_s
    return open_s > 0.0 and open_s / over_s * snapshot.node.cores >= _used_cores(job)


def takes_little(
    others: Sequence[JobView], before: Collection[str], even_cores: float
) -> tuple[str, ...]:
    """Those of the jobs without a target that use at most half of an equal share, or a whole one if
    they used half `before`: at any weight they take no more than under plain Docker. One that was
    squeezed below half has what it wants then, and must not be squeezed again for it."""

    def is_little(job: JobView) -> bool:
        if job.usage.window_cores is None:
            return job.name in before
        ratio = 1.0 if job.name in before else MOSTLY
        return job.usage.window_cores <= ratio * even_cores * job.spec.weight

    return tuple(job.name for job in others if is_little(job))


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

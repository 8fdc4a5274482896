"""Jobs without a target under the policy `adaptive`: a fair share, and idle CPU besides.

Under contention only those yield that take more than an equal share of the node: what a light one
wants is little at any weight, and its requests would wait behind those of services with a target.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from dlsched.estimate.tuning import CLEARLY, LITTLE
from dlsched.model.resource import CPU, Resource
from dlsched.model.state import JobView
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
    jobs: Sequence[JobView], before: Collection[str], even_cores: float, *, full: bool
) -> tuple[str, ...]:
    """The jobs that take more than an equal share, `even_cores` for weight 1, and serve no measured
    requests. One that did stays among them while the host is `full`: its use then does not
    show what it would take."""
    return tuple(job.name for job in jobs if _is_heavy(job, job.name in before, even_cores, full))


def _is_heavy(job: JobView, was: bool, even_cores: float, full: bool) -> bool:
    if job.progress.window.count:
        return False
    share_cores = even_cores * job.spec.weight / (CLEARLY if was else 1.0)
    return (was and full) or (job.usage.window_cores or 0.0) > share_cores


def expected_cores(job: JobView, share_cores: float) -> float:
    """Mean cores that the job will use of its share: all of it while its limit binds."""
    used, limit = job.usage.cpu_cores, job.actual.cpu_cores
    if used is None or (job.usage.throttled_ratio or 0.0) > LITTLE:
        return share_cores
    if limit is not None and used >= limit / CLEARLY:
        return share_cores
    return min(share_cores, max(CLEARLY * used, job.spec.bounds.floor_cores))

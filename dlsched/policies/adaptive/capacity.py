"""Estimate of how many cores the jobs can really have together, for the policy `adaptive`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.estimate.tuning import FINE, FULL_RATIO, LITTLE, MARGIN, MOSTLY, ROOM_RATIO
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.state import JobView, Snapshot
from dlsched.model.units import same_cores


@dataclass(frozen=True, slots=True)
class Capacity:
    cores: float
    saturated: bool = False
    """Whether the host is full, and nearly so without the trainings that yield (in the idle class,
    or under a ceiling): a job may then get less than its ceiling, and less than it could use."""


def believed(snapshot: Snapshot, before_cores: float | None) -> Capacity:
    """The capacity now, given the last estimate (None: there is none).

    While the host has idle CPU it is the node's capacity, regained step by step after a shortage.
    On a full host it is the jobs' present use plus a tenth: CPU that becomes free is only noticed
    when it is tried. It is their present use alone where most of it is that of services under
    ceilings, as these try all the time. CPU that the system itself uses is left out. Uses that
    cannot be read count 0.
    """
    node = snapshot.node
    used_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.jobs)
    foreign_cores = node.foreign_cores or 0.0
    busy_cores = used_cores + foreign_cores
    full_cores = FULL_RATIO * node.cores
    cores = node.capacity_cores
    if busy_cores > full_cores:
        system_cores = min(foreign_cores, LITTLE * node.cores)
        limited = [job for job in snapshot.running if _limited(job)]
        limited_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in limited)
        # Leaving a single one out would give its cores to processes outside alone.
        several = len(limited) > 1 and foreign_cores > system_cores
        tried = several and limited_cores > MOSTLY * used_cores
        grows = 1.0 if tried else MARGIN
        cores = min(cores, grows * used_cores, node.cores - system_cores)
    elif before_cores is not None:
        idle_cores = max(node.cores - busy_cores, 0.0)
        # Other processes may take the rest of the idle CPU again.
        cores = min(cores, max(MARGIN * before_cores, used_cores + MOSTLY * idle_cores))
    # Dead band: foreign use always varies, and each change of capacity would change all ceilings.
    if before_cores is not None and abs(cores - before_cores) < FINE * before_cores:
        cores = min(before_cores, node.capacity_cores)
    floors_cores = math.fsum(job.spec.bounds.floor_cores for job in snapshot.jobs if job.runs)
    training_cores = math.fsum(
        job.usage.cpu_cores or 0.0
        for job in snapshot.running
        if isinstance(job.spec.target, AccuracyTarget)
        and (job.cpu_idle or job.actual.cpu_cores is not None)
    )
    return Capacity(
        cores=max(cores, min(floors_cores, node.capacity_cores)),
        # On a full host trainings keep a small share by their weight: they never yield all of it.
        saturated=busy_cores > full_cores and busy_cores - training_cores > ROOM_RATIO * node.cores,
    )


def _limited(job: JobView) -> bool:
    """Whether it is a service under a ceiling that is not its own."""
    ceiling = job.actual.cpu_cores
    serves = isinstance(job.spec.target, LatencyTarget)
    return serves and ceiling is not None and not same_cores(ceiling, job.spec.bounds.ceiling_cores)

"""How many cores the jobs can really have together, for the policy `adaptive`.

Owns that belief and what it is drawn from: what jobs use and what others use on the host. It must
not divide anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.estimate.tuning import FINE, FULL_RATIO, LITTLE, MARGIN, MOSTLY
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import Snapshot


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is to divide."""

    cores: float
    saturated: bool = False
    """Whether the host is full without its trainings, who make way for everybody: then a job may
    get less than its ceiling says."""


def believed(snapshot: Snapshot, before_cores: float | None) -> Capacity:
    """What can be had, after what was believed before (None: nothing).

    While the host has idle CPU the node's capacity is believed in, step by step after a shortage.
    Without any, jobs can have together what they use now and a little more, since that little must
    be tried to be noticed, but not what the system itself uses. A use that cannot be read says
    nothing.
    """
    node = snapshot.node
    used_cores = math.fsum(job.usage.cpu_cores or 0.0 for job in snapshot.jobs)
    foreign_cores = node.foreign_cores or 0.0
    busy_cores = used_cores + foreign_cores
    full_cores = FULL_RATIO * node.cores
    cores = node.capacity_cores
    if busy_cores > full_cores:
        system_cores = min(foreign_cores, LITTLE * node.cores)
        cores = min(cores, MARGIN * used_cores, node.cores - system_cores)
    elif before_cores is not None:
        idle_cores = max(node.cores - busy_cores, 0.0)
        # Others may come back for the rest of what is idle.
        cores = min(cores, max(MARGIN * before_cores, used_cores + MOSTLY * idle_cores))
    # What others use is never the same, and each change of it is one of everybody's ceilings.
    if before_cores is not None and abs(cores - before_cores) < FINE * before_cores:
        cores = min(before_cores, node.capacity_cores)
    floors_cores = math.fsum(job.spec.bounds.floor_cores for job in snapshot.jobs if job.runs)
    making_way = math.fsum(
        job.usage.cpu_cores or 0.0
        for job in snapshot.running
        if isinstance(job.spec.target, AccuracyTarget)
    )
    return Capacity(
        cores=max(cores, min(floors_cores, node.capacity_cores)),
        saturated=busy_cores - making_way > full_cores,
    )

"""Admission: a queue by weight and age, bounded by job count, memory, floors and GPUs. The rule
holds for the node and for each owner. Forecasts of when jobs end are passed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dlsched.control.gpus.queue import GpuQueue, Turn
from dlsched.model.spec import JobSpec, OwnerCeilings
from dlsched.model.state import NodeView
from dlsched.model.units import exceeds

HEAD_START_S = 600.0
"""Head start in the queue for each doubling of the weight."""


def rank_s(weight: float, arrived_s: float) -> float:
    """The queue position of a job; lower starts earlier.

    It is the arrival time, less a head start of 10 minutes for each doubling of the weight. Only
    jobs that arrive soon after a job can pass it, so no stream of heavier jobs can starve it.
    """
    return arrived_s - HEAD_START_S * math.log2(weight)


def admit(
    queue: Sequence[JobSpec],
    present: Sequence[JobSpec],
    node: NodeView,
    max_jobs: int,
    ceilings_of: Callable[[int | None], OwnerCeilings | None] = lambda _: None,
    gpus: GpuQueue | None = None,
) -> dict[str, Turn]:
    """For each job in `queue`, which is in order of `rank_s`, whether it may start; `present` jobs
    hold resources.

    The first job that does not fit blocks all jobs behind it, so that small jobs cannot starve a
    large one. A job that could not fit even on an empty node blocks none. A job whose owner has
    ceilings blocks only that owner's jobs, so asking for much never stops others. A job that waits
    only for GPUs blocks none, but reserves the GPUs that it will get: see `gpus.queue`. A job
    without `memory` counts as 0 bytes. Without `gpus`, all GPUs of the node are free.
    """
    gpus = gpus or GpuQueue(node)
    here = list(present)
    count = len(present)
    memory_bytes = sum(spec.container.memory_bytes or 0 for spec in present)
    floor_cores = sum(spec.bounds.least_cores(node.grain_cores) for spec in present)
    turns: dict[str, Turn] = {}
    first: dict[int | None, str] = {}
    for spec in queue:
        ceilings = ceilings_of(spec.owner)
        queue_of = None if ceilings is None else spec.owner
        needs_bytes = spec.container.memory_bytes or 0
        needs_cores = spec.bounds.least_cores(node.grain_cores)
        never = _never(spec, node) or gpus.never(spec)
        if never is not None:
            turns[spec.name] = Turn(never)
            continue
        ahead = first.get(queue_of, first.get(None))
        if ahead is not None:
            turns[spec.name] = Turn(f"waits behind {ahead}")
            continue
        reason = None if ceilings is None else _above(spec, here, ceilings, node.grain_cores)
        if reason is not None:
            pass
        elif count >= max_jobs:
            reason = f"{count} jobs are present, max_jobs is {max_jobs}"
        elif memory_bytes + needs_bytes > node.memory_bytes:
            free = _mib(node.memory_bytes - memory_bytes)
            reason = f"needs {_mib(needs_bytes)} of memory, {free} is not promised to other jobs"
        elif exceeds(floor_cores + needs_cores, node.capacity_cores):
            free_cores = node.capacity_cores - floor_cores
            reason = (
                f"the job's floor is {needs_cores:.2f} cores, other jobs' floors leave "
                f"{free_cores:.2f}"
            )
        if reason is not None:
            turns[spec.name] = Turn(reason)
            first[queue_of] = spec.name
            continue
        turn = gpus.admit(spec) if spec.container.gpus else Turn()
        turns[spec.name] = turn
        if not turn.admitted:
            continue
        here.append(spec)
        count += 1
        memory_bytes += needs_bytes
        floor_cores += needs_cores
    return turns


def _above(
    spec: JobSpec, present: Sequence[JobSpec], ceilings: OwnerCeilings, grain_cores: float
) -> str | None:
    """Why the job exceeds its owner's ceilings beside the owner's other jobs; None: it fits."""
    others = [one for one in present if one.owner == spec.owner]
    whose = f"uid {spec.owner}"
    if len(others) >= ceilings.jobs:
        return f"{whose} has {len(others)} jobs, at most {ceilings.jobs} are allowed"
    gpus = sum(one.container.gpus for one in others)
    if gpus + spec.container.gpus > ceilings.gpus:
        return f"needs {spec.container.gpus} GPUs, {whose} has {gpus} of at most {ceilings.gpus}"
    if ceilings.memory_bytes is not None:
        held = sum(one.container.memory_bytes or 0 for one in others)
        needs = spec.container.memory_bytes or 0
        if held + needs > ceilings.memory_bytes:
            bound = f"{whose} has {_mib(held)} of at most {_mib(ceilings.memory_bytes)}"
            return f"needs {_mib(needs)} of memory, {bound}"
    if ceilings.cpu_cores is not None:
        floors = sum(one.bounds.least_cores(grain_cores) for one in others)
        needs_cores = spec.bounds.least_cores(grain_cores)
        if exceeds(floors + needs_cores, ceilings.cpu_cores):
            held_cores = f"floors of {whose} take {floors:.2f} of at most {ceilings.cpu_cores:.2f}"
            return f"the job's floor is {needs_cores:.2f} cores, {held_cores}"
    return None


def _never(spec: JobSpec, node: NodeView) -> str | None:
    needs_bytes = spec.container.memory_bytes or 0
    if needs_bytes > node.memory_bytes:
        return f"can never start: needs {_mib(needs_bytes)}, the node has {_mib(node.memory_bytes)}"
    needs_cores = spec.bounds.least_cores(node.grain_cores)
    if exceeds(needs_cores, node.capacity_cores):
        return (
            f"can never start: the job's floor is {needs_cores:.2f} cores, the node has "
            f"{node.capacity_cores:.2f}"
        )
    return None


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"

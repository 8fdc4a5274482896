"""Admission: a queue by weight and age, bounded by job count, memory, floors and GPUs. The rule
holds for the node and for each owner. Forecasts of when jobs end are passed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from dlsched.control.gpus.queue import GpuQueue, Turn
from dlsched.model.spec import JobSpec, OwnerCeilings
from dlsched.model.state import NodeView
from dlsched.model.units import counted, exceeds

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
    promised_bytes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Turn]:
    """For each job in `queue`, which is in order of `rank_s`, whether it may start; `present` jobs
    hold resources.

    The first job that does not fit blocks all jobs behind it, so that small jobs cannot starve a
    large one. A job that could not fit even on an empty node blocks none. A job whose owner has
    ceilings blocks only that owner's jobs, so asking for much never stops others. A job that waits
    only for GPUs blocks none, but reserves the GPUs that it will get: see `gpus.queue`. A job
    without `memory` counts as 0 bytes, and one whose limit was raised as that, by `promised_bytes`:
    never as its `max`, up to which it may be raised only where there is room. Without `gpus`, all
    GPUs of the node are free.
    """
    gpus = gpus or GpuQueue(node)
    whole = OwnerCeilings(max_jobs, node.capacity_cores, node.memory_bytes)
    grain, here = node.grain_cores, list(present)
    turns: dict[str, Turn] = {}
    first: dict[int | None, str] = {}
    for spec in queue:
        ceilings = ceilings_of(spec.owner)
        queue_of = None if ceilings is None else spec.owner
        never = _lacks(spec, (), whole, "the node", grain, {})
        never = gpus.never(spec) if never is None else f"can never start: {never}"
        if never is not None:
            turns[spec.name] = Turn(never)
            continue
        ahead = first.get(queue_of, first.get(None))
        if ahead is not None:
            turns[spec.name] = Turn(f"waits behind {ahead}")
            continue
        reason = None if ceilings is None else _above(spec, here, ceilings, grain, promised_bytes)
        reason = reason or _lacks(spec, here, whole, "the node", grain, promised_bytes)
        if reason is not None:
            turns[spec.name] = Turn(reason)
            first[queue_of] = spec.name
            continue
        turn = gpus.admit(spec) if spec.container.gpus else Turn()
        turns[spec.name] = turn
        if turn.admitted:
            here.append(spec)
    return turns


def _above(
    spec: JobSpec,
    present: Sequence[JobSpec],
    ceilings: OwnerCeilings,
    grain_cores: float,
    promised_bytes: Mapping[str, int],
) -> str | None:
    """Why the job exceeds its owner's ceilings beside the owner's other jobs; None: it fits."""
    others = [one for one in present if one.owner == spec.owner]
    gpus = sum(one.container.gpus for one in others)
    if gpus + spec.container.gpus > ceilings.gpus:
        asks = f"the job needs {spec.container.gpus} GPUs"
        return f"{asks}, jobs of uid {spec.owner} have {gpus} of {ceilings.gpus}"
    return _lacks(spec, others, ceilings, f"uid {spec.owner}", grain_cores, promised_bytes)


def _lacks(
    spec: JobSpec,
    others: Sequence[JobSpec],
    most: OwnerCeilings,
    whose: str,
    grain_cores: float,
    promised_bytes: Mapping[str, int],
) -> str | None:
    """Why the job does not fit beside those others within what all have together; None: it fits."""
    if len(others) >= most.jobs:
        return f"{whose} has {counted(len(others), 'job')}, at most {most.jobs} are allowed"
    needs_bytes = spec.container.memory_bytes or 0
    held_bytes = sum(
        promised_bytes.get(one.name, one.container.memory_bytes or 0) for one in others
    )
    if most.memory_bytes is not None and held_bytes + needs_bytes > most.memory_bytes:
        held = f"{_mib(held_bytes)} of {_mib(most.memory_bytes)}"
        return f"the job needs {_mib(needs_bytes)} of memory, jobs of {whose} have {held}"
    needs_cores = spec.bounds.least_cores(grain_cores)
    held_cores = sum(one.bounds.least_cores(grain_cores) for one in others)
    if most.cpu_cores is not None and exceeds(held_cores + needs_cores, most.cpu_cores):
        held = f"{held_cores:.2f} of {most.cpu_cores:.2f}"
        return f"the job's floor is {needs_cores:.2f} cores, floors of {whose} take {held}"
    return None


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"

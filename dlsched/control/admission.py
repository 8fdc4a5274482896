"""Who may start: a queue by weight and age, bounded by job count, memory, floors and GPUs.

Owns the admission rule, for the node and for each owner. It must not start anything, and must not
look at latency or progress: when a job may end is told to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlsched.control.gpus.queue import GpuQueue, Turn
from dlsched.model.spec import JobSpec, OwnerCeilings
from dlsched.model.state import NodeView

HEAD_START_S = 600.0
"""A job of twice the weight counts as if it had come so much earlier."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a job may start now, and on which GPUs; if not, why, and what it keeps."""

    admitted: bool
    reason: str | None = None
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that it gets."""
    kept: tuple[str, ...] = ()
    """UUIDs of the GPUs that are kept for it, since it is the first that waits for them."""
    wait_s: float | None = None
    """How long it waits for GPUs at the least; None: nothing tells."""


def rank_s(weight: float, arrived_s: float) -> float:
    """Where a job stands in the queue: the least is the first.

    It is when the job arrived, less a head start of 10 minutes for each doubling of its weight. So
    equal weights queue in order of arrival, and whatever the weights, only what comes soon after a
    job can pass it: it starves behind no stream of heavier ones.
    """
    return arrived_s - HEAD_START_S * math.log2(weight)


def admit(
    queue: Sequence[JobSpec],
    present: Sequence[JobSpec],
    node: NodeView,
    max_jobs: int,
    ceilings_of: Callable[[int | None], OwnerCeilings | None] = lambda _: None,
    gpus: GpuQueue | None = None,
) -> dict[str, Verdict]:
    """A verdict for each job in `queue`, which is in order of `rank_s`.

    `present` are the jobs that hold their resources already. The first that does not fit holds back
    all behind it, so that a stream of small jobs starves no large one; a job that cannot fit even
    on an empty node is told so and holds back nobody. One of an owner with ceilings holds back that
    owner's alone, and one that its owner's ceilings keep out nobody else's: nobody stops the others
    by asking for much. A job without `memory` counts as 0 bytes.

    One that waits for GPUs alone holds back nobody either, but keeps the GPUs that it will get: see
    `gpus.queue`. None there: of a node whose GPUs nobody holds.
    """
    gpus = gpus or GpuQueue(node)
    here = list(present)
    count = len(present)
    memory_bytes = sum(spec.container.memory_bytes or 0 for spec in present)
    floor_cores = sum(spec.bounds.floor_cores for spec in present)
    verdicts: dict[str, Verdict] = {}
    first: dict[int | None, str] = {}
    for spec in queue:
        ceilings = ceilings_of(spec.owner)
        queue_of = None if ceilings is None else spec.owner
        needs_bytes = spec.container.memory_bytes or 0
        never = _never(spec, node) or gpus.never(spec)
        if never is not None:
            verdicts[spec.name] = Verdict(False, never)
            continue
        ahead = first.get(queue_of, first.get(None))
        if ahead is not None:
            verdicts[spec.name] = Verdict(False, f"waits behind {ahead}")
            continue
        reason = None if ceilings is None else _above(spec, here, ceilings)
        if reason is not None:
            pass
        elif count >= max_jobs:
            reason = f"{count} jobs are present, max_jobs is {max_jobs}"
        elif memory_bytes + needs_bytes > node.memory_bytes:
            free = _mib(node.memory_bytes - memory_bytes)
            reason = f"needs {_mib(needs_bytes)} of memory, {free} is not promised yet"
        elif floor_cores + spec.bounds.floor_cores > node.capacity_cores:
            free_cores = node.capacity_cores - floor_cores
            reason = (
                f"its floor is {spec.bounds.floor_cores:.2f} cores, "
                f"{free_cores:.2f} are left beside the others' floors"
            )
        if reason is not None:
            verdicts[spec.name] = Verdict(False, reason)
            first[queue_of] = spec.name
            continue
        turn = gpus.admit(spec) if spec.container.gpus else Turn()
        admitted = turn.reason is None
        verdicts[spec.name] = Verdict(admitted, turn.reason, turn.gpus, turn.kept, turn.wait_s)
        if not admitted:
            continue
        here.append(spec)
        count += 1
        memory_bytes += needs_bytes
        floor_cores += spec.bounds.floor_cores
    return verdicts


def _above(spec: JobSpec, present: Sequence[JobSpec], ceilings: OwnerCeilings) -> str | None:
    """Why the job does not fit beside what its owner's others hold; None: it does."""
    others = [one for one in present if one.owner == spec.owner]
    whose = f"uid {spec.owner}"
    if len(others) >= ceilings.jobs:
        return f"{len(others)} jobs of {whose} are present, {ceilings.jobs} may be"
    gpus = sum(one.container.gpus for one in others)
    if gpus + spec.container.gpus > ceilings.gpus:
        return f"needs {spec.container.gpus} GPUs, {whose} holds {gpus} of {ceilings.gpus}"
    if ceilings.memory_bytes is not None:
        held = sum(one.container.memory_bytes or 0 for one in others)
        needs = spec.container.memory_bytes or 0
        if held + needs > ceilings.memory_bytes:
            bound = f"{whose} holds {_mib(held)} of {_mib(ceilings.memory_bytes)}"
            return f"needs {_mib(needs)} of memory, {bound}"
    if ceilings.cpu_cores is not None:
        floors = sum(one.bounds.floor_cores for one in others)
        if floors + spec.bounds.floor_cores > ceilings.cpu_cores + 1e-9:
            held_cores = f"floors of {whose} hold {floors:.2f} of {ceilings.cpu_cores:.2f}"
            return f"its floor is {spec.bounds.floor_cores:.2f} cores, {held_cores}"
    return None


def _never(spec: JobSpec, node: NodeView) -> str | None:
    needs_bytes = spec.container.memory_bytes or 0
    if needs_bytes > node.memory_bytes:
        return f"can never start: needs {_mib(needs_bytes)}, the node has {_mib(node.memory_bytes)}"
    if spec.bounds.floor_cores > node.capacity_cores:
        return (
            f"can never start: its floor is {spec.bounds.floor_cores:.2f} cores, "
            f"the node has {node.capacity_cores:.2f}"
        )
    return None


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"

"""The view of a shared GPU as a node of capacity 1, so that a policy can divide its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dlsched.model.facts import Usage
from dlsched.model.resource import GpuTime
from dlsched.model.spec import Bounds, JobSpec, Limits
from dlsched.model.state import GpuView, JobState, JobView, NodeView, Snapshot

GRAIN_SHARE = 0.01
"""Step of shares: no job could follow finer ones."""
_LEAST_SHARE = 0.05
_ROUNDING = 1e-9
"""Tolerance for sums of decimal fractions."""


def shares_gpus(job: JobView) -> bool:
    """Whether the job's share of GPU time is decided: it has no GPU alone, and reads its share. A
    job that shares its GPUs does so until it starts again, even if its file has changed."""
    divided = job.actual.gpu_share is not None
    return bool(job.gpus) and (divided or job.spec.bounds.floor_share < 1) and not job.adopted


def shared_gpus(snapshot: Snapshot) -> tuple[str, ...]:
    """UUIDs of the GPUs whose time is decided, sorted."""
    return tuple(sorted({uuid for job in snapshot.jobs if shares_gpus(job) for uuid in job.gpus}))


def as_node(
    snapshot: Snapshot, uuid: str, capacity: float = 1.0, foreign: float | None = None
) -> Snapshot:
    """The GPU as a node, and the jobs that share it with shares of its time in place of cores.
    Where changed files promise more than the whole GPU, floors are scaled down to it."""
    facts = [gpu.fact for gpu in snapshot.node.gpus if gpu.uuid == uuid]
    jobs = [
        _with_share(job, uuid)
        for job in snapshot.jobs
        if shares_gpus(job) and uuid in (*job.gpus, *job.gpus_kept)
    ]
    promised = math.fsum(job.spec.bounds.floor_cores for job in jobs)
    if promised > 1.0 + _ROUNDING:
        jobs = [_with_part(job, promised) for job in jobs]
    return replace(
        snapshot,
        node=NodeView(
            capacity_cores=capacity,
            cores=1.0,
            memory_bytes=facts[0].memory_bytes if facts else 0,
            grain_cores=GRAIN_SHARE,
            foreign_cores=foreign,
            weighs=False,
        ),
        jobs=tuple(jobs),
        resource=GpuTime(uuid, gpu_name(snapshot, uuid)),
    )


def foreign_share(gpu: GpuView, jobs: Iterable[JobView]) -> float | None:
    """Fraction of GPU time used by processes other than the jobs that share it; None: unknown."""
    ours = {job.container_id for job in jobs if gpu.uuid in job.gpus and shares_gpus(job)}
    foreign = [one for one in gpu.fact.processes if one.container_id not in ours]
    if gpu.fact.busy_ratio is None or any(one.busy_ratio is None for one in foreign):
        return None
    used = sum(one.busy_ratio or 0.0 for one in foreign)
    return min(used, 1.0 - _LEAST_SHARE)


def starts_on(
    uuid: str, starts: Sequence[JobSpec], placements: Mapping[str, tuple[str, ...]]
) -> list[JobSpec]:
    """The jobs about to start that will share that GPU, in the form of `as_node`."""
    return [
        replace(spec, bounds=_bounds(spec.bounds))
        for spec in starts
        if uuid in placements.get(spec.name, ()) and spec.bounds.floor_share < 1
    ]


def gpu_name(snapshot: Snapshot, uuid: str) -> str:
    fact = next((gpu.fact for gpu in snapshot.node.gpus if gpu.uuid == uuid), None)
    if fact is None:
        return uuid
    return f"GPU {fact.index}" if fact.part_of is None else f"{uuid} of GPU {fact.index}"


def of_gpu(reason: str, name: str) -> str:
    """The reason with the GPU's name in front, unless it contains it. A policy that only knows
    cores writes of GPU time as of one core; that is explained then."""
    if not reason or name in reason:
        return reason
    scale = " (1 core is all of its time)" if " core" in reason else ""
    return f"{name}{scale}: {reason}"


def in_steps(share: float, floor_share: float) -> float:
    """The share in whole steps, rounded down so that sums still fit, at least the floor."""
    steps = math.floor(share / GRAIN_SHARE + 1e-6)
    return max(round(steps * GRAIN_SHARE, 2), floor_share)


def _with_share(job: JobView, uuid: str) -> JobView:
    bounds, usage, actual = _bounds(job.spec.bounds), job.usage, job.actual.gpu_share
    if uuid not in job.gpus:  # the GPU is reserved for the job while it moves
        job = replace(job, state=JobState.MOVING)
    if actual is None and not job.runs:
        actual = bounds.floor_cores  # it holds its promised share, not the whole GPU
    return replace(
        job,
        spec=replace(job.spec, bounds=bounds),
        desired=Limits(job.desired.gpu_share),
        actual=Limits(actual),
        cpu_shares=None,
        cpu_idle=False,
        can_idle=False,
        burst_cores=None,
        usage=Usage(
            cpu_cores=usage.gpu_ratio,
            window_cores=usage.gpu_window_ratio,
            memory_bytes=usage.gpu_memory_bytes,
        ),
    )


def _with_part(job: JobView, promised: float) -> JobView:
    bounds = replace(job.spec.bounds, floor_cores=job.spec.bounds.floor_cores / promised)
    return replace(job, spec=replace(job.spec, bounds=bounds))


def _bounds(bounds: Bounds) -> Bounds:
    return Bounds(bounds.floor_share, bounds.ceiling_share)

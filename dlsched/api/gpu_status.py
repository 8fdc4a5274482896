"""Fills the status schema's GPUs from a snapshot: each device, and each bound on a job's GPUs,
enforced or advisory."""

from __future__ import annotations

from dlsched.api.schema import BoundStatus, GpuStatus, GpuUserStatus, JobGpuStatus
from dlsched.control.gpus.placement import is_alone
from dlsched.model.state import GpuView, JobView, Snapshot

BOUNDED = ("devices", "time", "memory", "cpu")
"""Kinds of bounds on a job with GPUs."""

_ALONE = "its GPUs are its alone, so it is not bounded"
_ADVISORY = {
    "devices": "it is unknown how they reached it",
    "time": "sent to the job, which does not say that it keeps to it",
    "memory": "sent to the job; fit_to_allotment() has its framework keep to it",
    "cpu": "nothing holds it",
}
_PACED = "sent to the job, which paces itself"


def gpu_rows(snapshot: Snapshot) -> tuple[GpuStatus, ...]:
    """Every GPU of the node in the driver's order, with the jobs on it."""
    holders = [job for job in snapshot.jobs if job.state.holds]
    return tuple(
        _row(gpu, [job for job in holders if gpu.uuid in job.gpus], holders)
        for gpu in snapshot.node.gpus
    )


def gpu_of(job: JobView) -> JobGpuStatus | None:
    """A job's requested and assigned GPUs; None: it has neither."""
    container, bounds = job.spec.container, job.spec.bounds
    if not container.gpus and not job.gpus:
        return None
    return JobGpuStatus(
        count=container.gpus,
        uuids=tuple(job.gpus),
        kept=tuple(job.gpus_kept),
        model=container.gpu_model,
        floor_share=bounds.floor_share,
        ceiling_share=bounds.ceiling_share,
        desired_share=job.desired.gpu_share,
        actual_share=job.actual.gpu_share,
        asked_bytes=container.gpu_memory_bytes,
        used_ratio=job.usage.gpu_ratio,
        told_ratio=job.progress.gpu_ratio,
        memory_bytes=job.usage.gpu_memory_bytes,
        access=None if job.gpu_access is None else job.gpu_access.value,
        lost=job.gpu_lost,
        bounds={} if job.gpu_access is None else {what: _bound(job, what) for what in BOUNDED},
    )


def _bound(job: JobView, what: str) -> BoundStatus:
    by = dict(job.gpu_enforced).get(what)
    if by is not None:
        return BoundStatus(enforced=True, by=by)
    by_job = _ADVISORY[what]
    alone = is_alone(job.spec) and job.actual.gpu_share is None
    if what == "time" and alone:
        by_job = _ALONE
    elif what == "time" and job.progress.gpu_ratio is not None:
        by_job = _PACED
    elif what == "memory" and alone and job.spec.container.gpu_memory_bytes is None:
        by_job = _ALONE
    return BoundStatus(enforced=False, by=by_job)


def _row(gpu: GpuView, on_it: list[JobView], holders: list[JobView]) -> GpuStatus:
    fact = gpu.fact
    return GpuStatus(
        index=fact.index,
        uuid=fact.uuid,
        part_of=fact.part_of,
        model=fact.model,
        memory_bytes=fact.memory_bytes,
        memory_used_bytes=fact.memory_used_bytes,
        busy_ratio=fact.busy_ratio,
        compute_mode=fact.compute_mode.value,
        numa_node=fact.numa_node,
        jobs=tuple(GpuUserStatus(job.name, _share(job)) for job in on_it),
        kept_for=(*(one.name for one in holders if gpu.uuid in one.gpus_kept), *gpu.kept_for),
        promised_share=sum(job.spec.bounds.floor_share for job in on_it),
        reserved=gpu.reserved,
        foreign_processes=gpu.foreign_processes,
        foreign_memory_bytes=gpu.foreign_memory_bytes,
        trouble=fact.trouble,
    )


def _share(job: JobView) -> float:
    """The last share set, else the guaranteed one."""
    given = job.actual.gpu_share
    return job.spec.bounds.floor_share if given is None else given

"""What GPUs do for jobs, as a status tells it: each device, and what bounds each job on its own.

Owns those rows, and which bounds are enforced and which are only told to a job. It must not read
anything but a snapshot.
"""

from __future__ import annotations

from typing import Any

from dlsched.control.gpus.placement import is_alone
from dlsched.model.state import GpuView, JobView, Snapshot

BOUNDED = ("devices", "time", "memory", "cpu")
"""By what a job with GPUs is bounded."""

_ALONE = "its GPUs are its alone, so it is not bounded"
_ADVISORY = {
    "devices": "nobody knows how they reached it",
    "time": "told to the job, which does not say that it keeps to it",
    "memory": "told to the job; fit_to_allotment() has its framework keep to it",
    "cpu": "nothing holds it",
}
_PACED = "told to the job, which paces itself"


def gpu_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Every GPU of the node, in the driver's order, with the jobs on it."""
    holders = [job for job in snapshot.jobs if job.state.holds]
    return [
        _row(gpu, [job for job in holders if gpu.uuid in job.gpus], holders)
        for gpu in snapshot.node.gpus
    ]


def gpu_of(job: JobView) -> dict[str, Any] | None:
    """A job's part in GPUs; None: it has none, and asks for none."""
    container, bounds = job.spec.container, job.spec.bounds
    if not container.gpus and not job.gpus:
        return None
    return {
        "count": container.gpus,
        "uuids": list(job.gpus),
        "kept": list(job.gpus_kept),
        "model": container.gpu_model,
        "floor_share": bounds.floor_share,
        "ceiling_share": bounds.ceiling_share,
        "desired_share": job.desired.gpu_share,
        "actual_share": job.actual.gpu_share,
        "asked_bytes": container.gpu_memory_bytes,
        "used_ratio": job.usage.gpu_ratio,
        "told_ratio": job.progress.gpu_ratio,
        "memory_bytes": job.usage.gpu_memory_bytes,
        "access": None if job.gpu_access is None else job.gpu_access.value,
        "lost": job.gpu_lost,
        "bounds": {} if job.gpu_access is None else {what: _bound(job, what) for what in BOUNDED},
    }


def _bound(job: JobView, what: str) -> dict[str, Any]:
    by = dict(job.gpu_enforced).get(what)
    if by is not None:
        return {"enforced": True, "by": by}
    words = _ADVISORY[what]
    alone = is_alone(job.spec) and job.actual.gpu_share is None
    if what == "time" and alone:
        words = _ALONE
    elif what == "time" and job.progress.gpu_ratio is not None:
        words = _PACED
    elif what == "memory" and alone and job.spec.container.gpu_memory_bytes is None:
        words = _ALONE
    return {"enforced": False, "by": words}


def _row(gpu: GpuView, on_it: list[JobView], holders: list[JobView]) -> dict[str, Any]:
    fact = gpu.fact
    return {
        "index": fact.index,
        "uuid": fact.uuid,
        "part_of": fact.part_of,
        "model": fact.model,
        "memory_bytes": fact.memory_bytes,
        "memory_used_bytes": fact.memory_used_bytes,
        "busy_ratio": fact.busy_ratio,
        "compute_mode": fact.compute_mode.value,
        "numa_node": fact.numa_node,
        "jobs": [{"name": job.name, "share": _share(job)} for job in on_it],
        "kept_for": [job.name for job in holders if gpu.uuid in job.gpus_kept],
        "promised_share": sum(job.spec.bounds.floor_share for job in on_it),
        "reserved": gpu.reserved,
        "foreign_processes": gpu.foreign_processes,
        "foreign_memory_bytes": gpu.foreign_memory_bytes,
        "trouble": fact.trouble,
    }


def _share(job: JobView) -> float:
    """What it was told that it may use, else what it is promised."""
    told = job.actual.gpu_share
    return job.spec.bounds.floor_share if told is None else told

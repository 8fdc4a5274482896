"""A container's GPUs, the bounds of their use, what enforces these, and the alarms of what is
wrong with them. The rest is advisory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, GpuAccess, GpuFact
from dlsched.model.units import render_bytes
from dlsched.runtime.allotment import job_path, read_allotment
from dlsched.runtime.docker.gpus.canary import REMEDY, Canary
from dlsched.runtime.docker.gpus.injection import share_of, uuids_of
from dlsched.runtime.gpu import remedy
from dlsched.runtime.machine.inspected import Inspected

_DEVICES = {
    GpuAccess.CDI: "CDI: the job can open only its own GPUs",
    GpuAccess.RUNTIME: "NVIDIA runtime in CDI mode: the job can open only its own GPUs",
    GpuAccess.NODES: "device nodes: the job has only those of its own GPUs",
    GpuAccess.LEGACY: "NVIDIA hook in legacy mode: the job can open only its own GPUs",
}


def with_gpus(
    fact: ContainerFact,
    described: Inspected,
    devices: Iterable[GpuFact],
    canary: Canary,
    state_dir: Path,
) -> ContainerFact:
    """The fact with its GPUs added; `devices` are the host's. Their share of time is read from the
    job's allotment, the only place that has it."""
    access = described.gpu_access
    if access is None:
        return fact
    actual = fact.actual
    if described.adopted is None:
        with suppress(OSError, ValueError):
            allotment = read_allotment(job_path(state_dir, described.job))
            share = share_of(allotment.gpu_share, described.mps_threads_percent)
            actual = replace(actual, gpu_share=share)
    return replace(
        fact,
        actual=actual,
        gpus=uuids_of(described.gpus, devices),
        gpu_access=access,
        gpu_enforced=tuple(
            _enforced(
                access,
                described.mps_threads_percent,
                described.mps_memory_bytes,
                by_file=canary.bar(access) is not None,
            )
        ),
        gpu_lost=canary.lost(described.container_id, described.pid),
    )


def _enforced(
    access: GpuAccess,
    threads_percent: int | None,
    memory_bytes: int | None,
    *,
    by_file: bool,
) -> Iterator[tuple[str, str]]:
    """What is bounded, each with what enforces it; `by_file`: CPU limits are written past the
    engine."""
    yield "devices", _DEVICES[access]
    if threads_percent is not None:
        yield "time", f"MPS: {threads_percent} % of a GPU's threads, set at the job's start"
    if memory_bytes is not None:
        yield "memory", f"MPS: {render_bytes(memory_bytes)} on each GPU, set at the job's start"
    yield "cpu", "dlsched, through the container's control group" if by_file else "the engine"


def gpu_alarms(
    gpus: Sequence[GpuFact], problem: str | None, containers: Iterable[Inspected], canary: Canary
) -> tuple[Alarm, ...]:
    """`problem`: why GPUs cannot be read; `canary` knows which containers lost theirs."""
    alarms = []
    if problem is not None:
        alarms.append(Alarm("gpus", AlarmKey.GPU_DRIVER, f"gpu: {problem}"))
    alarms += [
        Alarm(gpu.uuid, AlarmKey.GPU_LOST, f"gpu: {_what_is_wrong(gpu)}")
        for gpu in gpus
        if gpu.trouble is not None
    ]
    for one in containers:
        why = canary.lost(one.container_id, one.pid) if one.gpu_access is not None else None
        if why is not None:
            alarms.append(Alarm(one.job, AlarmKey.GPU_TAKEN, f"gpu: {one.job}: {why}: {REMEDY}"))
    return tuple(alarms)


def _what_is_wrong(gpu: GpuFact) -> str:
    what = remedy(gpu)
    cure = f" ({what})" if what else ""
    return f"GPU {gpu.index} ({gpu.uuid[:12]}): {gpu.trouble}{cure}"

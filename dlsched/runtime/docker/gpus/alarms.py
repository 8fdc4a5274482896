"""What is wrong with GPUs and with the containers that lost theirs, as alarms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import GpuFact
from dlsched.runtime.docker.gpus.canary import REMEDY, Canary
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.gpu import remedy


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

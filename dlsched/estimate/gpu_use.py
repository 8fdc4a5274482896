"""GPU use of each container, summed from the driver's figures for processes; None with MIG, where
those cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dlsched.model.facts import ContainerFact, GpuFact


class GpuUse(NamedTuple):
    """One container's use of its GPUs; None: unread."""

    busy_ratio: float | None = None
    """Fraction of time, averaged over its GPUs."""
    memory_bytes: int | None = None
    """Sum over its GPUs."""


def gpu_uses(gpus: Sequence[GpuFact], containers: Iterable[ContainerFact]) -> Mapping[str, GpuUse]:
    known = {gpu.uuid: gpu for gpu in gpus}
    uses: dict[str, GpuUse] = {}
    for one in containers:
        if not one.gpus:
            continue
        if any(uuid not in known or known[uuid].trouble is not None for uuid in one.gpus):
            uses[one.container_id] = GpuUse()
            continue
        busy = [_busy_ratio(known[uuid], one.container_id) for uuid in one.gpus]
        held = [
            process.memory_bytes
            for uuid in one.gpus
            for process in known[uuid].processes
            if process.container_id == one.container_id
        ]
        read = [ratio for ratio in busy if ratio is not None]
        sizes = [size for size in held if size is not None]
        uses[one.container_id] = GpuUse(
            sum(read) / len(busy) if len(read) == len(busy) else None,
            sum(sizes) if len(sizes) == len(held) else None,
        )
    return uses


def _busy_ratio(gpu: GpuFact, container_id: str) -> float | None:
    if gpu.busy_ratio is None:
        return None
    own = [one.busy_ratio for one in gpu.processes if one.container_id == container_id]
    read = [ratio for ratio in own if ratio is not None]
    return min(1.0, sum(read)) if len(read) == len(own) else None

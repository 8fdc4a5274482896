"""GPU use of each container, summed from the driver's figures for processes; None with MIG, where
those cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from dlsched.model.facts import ContainerFact, GpuFact

Number = TypeVar("Number", int, float)


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
        whole = total(busy)
        uses[one.container_id] = GpuUse(None if whole is None else whole / len(busy), total(held))
    return uses


def _busy_ratio(gpu: GpuFact, container_id: str) -> float | None:
    if gpu.busy_ratio is None:
        return None
    used = total(one.busy_ratio for one in gpu.processes if one.container_id == container_id)
    return None if used is None else min(1.0, used)


def total(values: Iterable[Number | None]) -> Number | Literal[0] | None:
    """The sum; None: one of them is unread."""
    read: list[Number] = []
    for value in values:
        if value is None:
            return None
        read.append(value)
    return sum(read)

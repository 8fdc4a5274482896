"""Metrics of the node's GPUs and MIG instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dlsched.api.metrics.metric import Kind, Metric, Read, Scene, Series
from dlsched.api.schema import GpuStatus


def _by_gpu(value: Callable[[GpuStatus], float | None]) -> Read:
    def read(scene: Scene) -> Iterable[Series]:
        for gpu in scene.status.node.gpus:
            known = value(gpu)
            if known is not None:
                yield (gpu.uuid,), known

    return read


GPU_METRICS: tuple[Metric, ...] = (
    Metric(
        "gpu_info",
        Kind.INFO,
        ("gpu", "uuid", "model"),
        "A GPU, or one MIG instance: its position in the driver's order, UUID and product name.",
        lambda scene: (
            ((str(gpu.index), gpu.uuid, gpu.model), 1.0) for gpu in scene.status.node.gpus
        ),
    ),
    Metric(
        "gpu_up",
        Kind.GAUGE,
        ("uuid",),
        "Whether the GPU can be used, 1 or 0; 0 for one that is lost.",
        _by_gpu(lambda gpu: gpu.trouble is None),
    ),
    Metric(
        "gpu_busy_ratio",
        Kind.GAUGE,
        ("uuid",),
        "Fraction of the driver's last sampling period in which it computed; absent on MIG.",
        _by_gpu(lambda gpu: gpu.busy_ratio),
    ),
    Metric(
        "gpu_memory_used_bytes",
        Kind.GAUGE,
        ("uuid",),
        "Used memory of the GPU.",
        _by_gpu(lambda gpu: gpu.memory_used_bytes),
    ),
    Metric(
        "gpu_memory_bytes",
        Kind.GAUGE,
        ("uuid",),
        "Memory of the GPU.",
        _by_gpu(lambda gpu: gpu.memory_bytes),
    ),
)

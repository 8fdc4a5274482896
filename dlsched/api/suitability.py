"""What a running node lacks for a job."""

from __future__ import annotations

from collections.abc import Iterator

from dlsched.api.schema import GpuStatus, NodeStatus
from dlsched.config.yaml import Path as Place
from dlsched.control.gpus.placement import is_model, kinds_text
from dlsched.model.spec import JobSpec
from dlsched.model.units import exceeds, render_bytes, render_cores, shown


def lacks(spec: JobSpec, node: NodeStatus) -> Iterator[tuple[Place, str]]:
    """Requests that exceed the node's size: the key's path, and the problem."""
    floor_cores, memory_bytes = spec.bounds.floor_cores, spec.container.memory_bytes or 0
    if exceeds(floor_cores, node.capacity_cores):
        has = render_cores(node.capacity_cores)
        yield ("cpus", "min"), f"{render_cores(floor_cores)}, the node has only {has} for jobs"
    if memory_bytes > node.memory_bytes:
        has = render_bytes(node.memory_bytes)
        yield ("memory",), f"{render_bytes(memory_bytes)}, the node has only {has} for jobs"
    # A GPU that is not visible now may come back.
    if spec.container.gpus and node.gpu_trouble is None:
        yield from _lacks_gpus(spec, [gpu for gpu in node.gpus if not gpu.reserved])


def _lacks_gpus(spec: JobSpec, gpus: list[GpuStatus]) -> Iterator[tuple[Place, str]]:
    asked, model = spec.container, spec.container.gpu_model
    there, such = _counted(gpus), ""
    if asked.gpus <= len(gpus) and model is not None:
        gpus, such = [gpu for gpu in gpus if is_model(gpu.model, model)], " such"
        if not gpus:
            yield ("gpus", "model"), f"{shown(model)}, the node has none{there}"
            return
    if asked.gpus <= len(gpus) and asked.gpu_memory_bytes is not None:
        most_bytes = max(gpu.memory_bytes for gpu in gpus)
        if asked.gpu_memory_bytes > most_bytes:
            what = f"{render_bytes(asked.gpu_memory_bytes)}, the node's largest{such} has "
            yield ("gpus", "memory"), f"{what}{render_bytes(most_bytes)}{there}"
            return
        gpus = [gpu for gpu in gpus if gpu.memory_bytes >= asked.gpu_memory_bytes]
        such = " such"
    if asked.gpus > len(gpus):
        yield ("gpus", "count"), f"{asked.gpus}{such}, the node has {len(gpus) or 'none'}{there}"


def _counted(gpus: list[GpuStatus]) -> str:
    kinds = kinds_text((gpu.model, gpu.memory_bytes) for gpu in gpus)
    return f": {kinds}" if kinds else ""

"""Whether a running node suits a job: what it lacks, and doubts about the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlsched.api.schema import (
    AccuracyTargetStatus,
    ForecastStatus,
    GpuStatus,
    JobStatus,
    LatencyTargetStatus,
    NodeStatus,
)
from dlsched.config.yaml import Path as Place
from dlsched.control.gpus.placement import is_model, kinds_text
from dlsched.estimate.evaluations import reaches
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import AccuracyTarget, JobSpec, LatencyTarget
from dlsched.model.units import exceeds, render_bytes, render_cores, render_seconds, shown


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


def doubts(spec: JobSpec, jobs: Iterable[JobStatus]) -> Iterator[str]:
    """Doubts about the job's target, from forecasts for the running job of that name. None if that
    has another kind of target."""
    job = next((job for job in jobs if job.name == spec.name), None)
    for forecast in () if job is None else job.outlook:
        before = None if job is None else job.target
        if isinstance(spec.target, LatencyTarget) and isinstance(before, LatencyTargetStatus):
            if forecast.tier == "latency":
                yield from _latency_doubts(spec, spec.target, before, forecast)
        elif isinstance(spec.target, AccuracyTarget) and isinstance(before, AccuracyTargetStatus):
            yield from _tier_doubts(spec.target, before, forecast)


def _latency_doubts(
    spec: JobSpec, target: LatencyTarget, before: LatencyTargetStatus, forecast: ForecastStatus
) -> Iterator[str]:
    """For the same quantile. `needs_cores` holds for that latency and shorter ones."""
    if before.quantile != target.quantile:
        return
    best_s, needs_cores = forecast.best, forecast.needs_cores
    ceiling_cores = spec.bounds.ceiling_cores
    if forecast.kind == ForecastKind.IMPOSSIBLE and best_s is not None and target.seconds < best_s:
        asked = render_seconds(target.seconds)
        yield (
            f"target.latency: {asked}; the job reaches {render_seconds(best_s)} at best as it runs "
            "now"
        )
    elif needs_cores is None or ceiling_cores is None or target.seconds > before.seconds:
        return
    elif ceiling_cores < needs_cores:
        needs = f"the job's target needs {render_cores(needs_cores)} as it runs now"
        yield f"cpus.max: {render_cores(ceiling_cores)}, {needs}"


def _tier_doubts(
    target: AccuracyTarget, before: AccuracyTargetStatus, forecast: ForecastStatus
) -> Iterator[str]:
    best, tier = forecast.best, forecast.tier
    asked = {"deliver": target.deliver, "finish": target.finish}.get(tier)
    short = forecast.kind in (ForecastKind.IMPOSSIBLE, ForecastKind.UNLIKELY)
    if before.metric != target.metric or not short or best is None:
        return
    if asked is not None and not reaches(target, asked, best):
        yield f"target.{tier}: {asked:g}; {best:.4g} at best is expected as the job runs now"

"""GPUs in `ps` and `why`: the table of devices, and the bounds on a job's GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlsched.api.schema import GpuStatus, JobGpuStatus
from dlsched.cli.layout import Cell, Column, Page
from dlsched.model.units import render_bytes

MODEL_COLUMNS = 110
"""The minimum page width that has a column for the GPU's model."""

SHORT_CHARACTERS = 12
"""Number of characters of a UUID, enough for `docker` and `nvidia-smi` to find a host's GPU."""


def show_gpus(gpus: Sequence[GpuStatus], page: Page) -> None:
    if not gpus:
        return
    model_shown = page.width >= MODEL_COLUMNS
    columns = [
        Column("GPU", right=True),
        Column("UUID", least=SHORT_CHARACTERS),
        *([Column("MODEL", most=26)] if model_shown else []),
        Column("MEMORY", least=18),
        Column("BUSY", least=7),
        Column("JOBS", wraps=True),
    ]
    rows = [
        [
            Cell(str(gpu.index)),
            Cell(short(gpu.uuid)),
            *([Cell(gpu.model)] if model_shown else []),
            Cell(_memory(gpu)),
            _busy(gpu),
            Cell(_users(gpu)),
        ]
        for gpu in gpus
    ]
    page.table(columns, rows)


def short(uuid: str) -> str:
    return uuid[:SHORT_CHARACTERS]


def _memory(gpu: GpuStatus) -> str:
    used = gpu.memory_used_bytes
    return f"{'?' if used is None else render_bytes(used)} / {render_bytes(gpu.memory_bytes)}"


def _busy(gpu: GpuStatus) -> Cell:
    if gpu.trouble is not None:
        return Cell("failed", "bold red")
    if gpu.busy_ratio is not None:
        return Cell(_percent(gpu.busy_ratio))
    return Cell("unknown (MIG)" if gpu.part_of is not None else "unknown", "dim")


def _users(gpu: GpuStatus) -> str:
    """The jobs on it with their shares, and everything else that blocks it for other jobs."""
    parts = [f"{job.name} {_percent(job.share)}" for job in gpu.jobs]
    parts += [f"kept for {name}" for name in gpu.kept_for]
    if gpu.reserved:
        parts.append("reserved")
    if gpu.compute_mode != "default":
        parts.append(gpu.compute_mode)
    if count := gpu.foreign_processes:
        held = f" ({render_bytes(gpu.foreign_memory_bytes)})"
        parts.append(f"{count} foreign process{'es' if count > 1 else ''}{held}")
    return ", ".join(parts) or "-"


# --------------------------------------------------------------------------- one job's GPUs


def in_short(gpu: JobGpuStatus | None) -> str | None:
    """The bounds on the job's GPUs in one line; None: it has no GPU now."""
    if gpu is None or not gpu.bounds:
        return None
    enforced = ", ".join(f"{what} ({one.by})" for what, one in gpu.bounds.items() if one.enforced)
    advisory = ", ".join(what for what, one in gpu.bounds.items() if not one.enforced)
    lines = [
        gpu.lost,
        f"enforced: {enforced}" if enforced else "",
        f"advisory: {advisory}" if advisory else "",
    ]
    return "; ".join(line for line in lines if line)


def in_full(gpu: JobGpuStatus | None) -> Iterator[tuple[str, str]]:
    """All bounds, as pairs of label and text."""
    if gpu is None:
        return
    yield "gpus", _holding(gpu)
    for what, one in gpu.bounds.items():
        yield what, f"{'enforced by' if one.enforced else 'advisory:'} {one.by}"


def _holding(gpu: JobGpuStatus) -> str:
    parts = [", ".join(gpu.uuids) or f"none of {gpu.count} yet"]
    if gpu.floor_share < 1 or gpu.actual_share is not None:
        parts.append(_share(gpu))
    elif gpu.uuids:
        parts.append("alone")
    if gpu.used_ratio is not None:
        parts.append(f"{_percent(gpu.used_ratio)} used")
    if gpu.told_ratio is not None:
        parts.append(f"{_percent(gpu.told_ratio)} used as reported by the job")
    if gpu.memory_bytes is not None:
        parts.append(f"{render_bytes(gpu.memory_bytes)} in use")
    if gpu.lost is not None:
        parts.append(gpu.lost)
    return "; ".join(parts)


def _share(gpu: JobGpuStatus) -> str:
    now = "" if gpu.actual_share is None else f"share {_percent(gpu.actual_share)}, "
    return f"{now}{_percent(gpu.floor_share)} to {_percent(gpu.ceiling_share)}"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"

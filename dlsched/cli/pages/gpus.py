"""GPUs in `ps`, `top` and `why`: tables of devices and their holders, bounds on a job's GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlsched.api.schema import GpuHolderStatus, GpuStatus, JobGpuStatus
from dlsched.cli.pages.layout import Cell, Column, Page
from dlsched.model.units import counted, render_bytes, render_seconds

MODEL_COLUMNS = 110
"""The minimum page width that has a column for the GPU's model."""

OWNER_FROM_COLUMNS = 80
"""The minimum page width that has a column for holders' owners."""

OWNER_COLUMNS = 16
"""Maximum width of an owner's name."""

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
    _show_holders(gpus, page)


def _show_holders(gpus: Sequence[GpuStatus], page: Page) -> None:
    """What holds memory of each GPU, and for how long without using it."""
    owner_shown = page.width >= OWNER_FROM_COLUMNS
    rows = [
        [
            Cell(str(gpu.index) if gpu.part_of is None else f"{gpu.index} {short(gpu.uuid)}"),
            Cell(one.kind),
            *([Cell(_owner(one))] if owner_shown else []),
            Cell("?" if one.memory_bytes is None else render_bytes(one.memory_bytes)),
            _use(gpu, one),
            Cell(_holder(one)),
        ]
        for gpu in gpus
        for one in gpu.holders
    ]
    if rows:
        columns = [
            Column("GPU", right=True),
            Column("KIND", least=7),
            *([Column("OWNER", most=OWNER_COLUMNS)] if owner_shown else []),
            Column("HELD", right=True, least=8),
            Column("USE", least=13),
            Column("HOLDER", wraps=True),
        ]
        page.table(columns, rows)
    for gpu in gpus:
        if gpu.holders_left_out:
            page.note(f"GPU {gpu.index}", f"and {counted(gpu.holders_left_out, 'more holder')}")


def _holder(one: GpuHolderStatus) -> str:
    """The holder, and the name of its container where that is another than the job's."""
    alike = one.job is None or one.name is None or one.name == one.job
    return one.text if alike else f"{one.text} ({one.name})"


def _owner(one: GpuHolderStatus) -> str:
    return one.user or ("-" if one.uid is None else f"uid {one.uid}")


def _use(gpu: GpuStatus, one: GpuHolderStatus) -> Cell:
    if one.idle_s is not None:
        idle = f"idle {render_seconds(_rounded_down(one.idle_s))}"
        return Cell(idle, "bold red" if one.idle_too_long else "")
    if one.computes:
        return Cell("in use", "green")
    return Cell("unknown (MIG)" if gpu.part_of is not None else "unknown", "dim")


def _rounded_down(idle_s: float) -> float:
    """Whole seconds, minutes from ten minutes on, and hours from ten hours on."""
    step_s = 1 if idle_s < 600 else 60 if idle_s < 36_000 else 3600
    return float(idle_s // step_s * step_s)


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
    parts = [", ".join(gpu.uuids) or f"0 of {counted(gpu.count, 'GPU')} yet"]
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

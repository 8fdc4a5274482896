"""One job as a line of the table, worded as `dlsched ps` words it. Columns have fixed widths, so
that nothing jumps from one cycle to the next; the first set that fits is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlsched.api.schema import JobStatus
from dlsched.cli.forecast_pages import FORECAST_COLUMNS, forecast_cell
from dlsched.cli.layout import GAP, Cell
from dlsched.cli.pages import STATE_STYLE, cpu_and_limit, measured_against_target, result
from dlsched.cli.top.curves import BUCKETS, bar
from dlsched.cli.top.order import BAND
from dlsched.model.units import render_bytes

Part = tuple[str, str]
"""Text and style."""

TREND = "TREND"


class Column(NamedTuple):
    """A column of fixed width."""

    header: str
    width: int
    right: bool = False


class Layout(NamedTuple):
    """The columns at some width of the terminal."""

    columns: Sequence[Column]
    whole_target: bool
    """Whether the quantile or metric is shown with the measured value."""
    with_gpus: bool

    @property
    def width(self) -> int:
        return sum(one.width for one in self.columns) + len(GAP) * (len(self.columns) - 1)


_GPU_COLUMNS = (
    Column("GPU", 5),
    Column("SHARE", 5, right=True),
    Column("USED", 5, right=True),
    Column("GPU MEMORY", 10, right=True),
)


class _Choice(NamedTuple):
    """What there is room for at some width."""

    name_columns: int
    target_columns: int
    trend_columns: int
    forecast: bool = False
    cpu: bool = True


_WHOLE_TARGET_COLUMNS, _TARGET_COLUMNS = 27, 17
"""With and without the quantile or metric."""

_CHOICES = (
    _Choice(24, _WHOLE_TARGET_COLUMNS, BUCKETS, forecast=True),
    _Choice(18, _WHOLE_TARGET_COLUMNS, BUCKETS, forecast=True),
    _Choice(18, _TARGET_COLUMNS, BUCKETS, forecast=True),
    _Choice(18, _WHOLE_TARGET_COLUMNS, BUCKETS),
    _Choice(18, _TARGET_COLUMNS, 11),
    _Choice(12, _TARGET_COLUMNS, 11),
    _Choice(10, _TARGET_COLUMNS, 0),
    _Choice(12, _TARGET_COLUMNS, 0, cpu=False),
    _Choice(12, 0, 0, cpu=False),
)
"""The first one that fits is used."""


def layout_for(width: int, name_columns: int, *, with_gpus: bool) -> Layout:
    """The widest layout that fits; `name_columns`: the longest name."""
    layouts = [_layout(one, name_columns, with_gpus=with_gpus) for one in _CHOICES]
    return next((one for one in layouts if one.width <= width), layouts[-1])


def _layout(choice: _Choice, name_columns: int, *, with_gpus: bool) -> Layout:
    whole = choice.target_columns == _WHOLE_TARGET_COLUMNS
    target = Column("MEASURED / TARGET" if whole else "TARGET", choice.target_columns, right=True)
    columns = [
        Column("NAME", max(8, min(name_columns, choice.name_columns))),
        Column("STATE", 10 if whole else 8),
        *([target] if target.width else []),
        Column("RESULT", 10),
        *([Column(TREND, choice.trend_columns)] if choice.trend_columns else []),
        *([Column("FORECAST", FORECAST_COLUMNS)] if choice.forecast else []),
        *([Column("CPU / LIMIT", 12)] if choice.cpu else []),
        *(_GPU_COLUMNS if with_gpus else ()),
    ]
    return Layout(columns, whole, with_gpus)


def cells(
    job: JobStatus,
    trend: Sequence[float | None] | None,
    layout: Layout,
    gpu_numbers: Mapping[str, int],
) -> list[Sequence[Part]]:
    """The text of each column, clean, in parts of one style. `gpu_numbers`: by UUID."""
    texts = {
        "NAME": Cell(job.name),
        "STATE": Cell(job.state, STATE_STYLE.get(job.state, "")),
        "TARGET": Cell(measured_against_target(job, whole=False)),
        "RESULT": result(job),
        "FORECAST": forecast_cell(job),
        "CPU / LIMIT": cpu_and_limit(job),
    }
    if layout.whole_target:
        texts["MEASURED / TARGET"] = Cell(measured_against_target(job))
    if layout.with_gpus:
        texts.update(_gpu_cells(job, gpu_numbers))
    return [
        _trend(job, trend, column.width)
        if column.header == TREND
        else [(texts[column.header].text, texts[column.header].style)]
        for column in layout.columns
    ]


def _trend(job: JobStatus, trend: Sequence[float | None] | None, width: int) -> Sequence[Part]:
    """The last columns of the trend; without any, why there are none."""
    if trend is None:
        return [(_no_trend(job), "dim")]
    return [(bar(ratio), _ratio_style(ratio)) for ratio in trend[-width:]]


def _no_trend(job: JobStatus) -> str:
    if job.blind is not None:
        return "blind"
    if job.target is None:
        return "no target"
    if job.target.kind == "accuracy":
        return "training"
    return "no requests" if job.state == "running" else ""


def _ratio_style(ratio: float | None) -> str:
    if ratio is None or ratio <= 1:
        return "green"
    return "yellow" if ratio <= BAND else "bold red"


def _gpu_cells(job: JobStatus, gpu_numbers: Mapping[str, int]) -> Mapping[str, Cell]:
    gpu = job.gpu
    if gpu is None:
        return {column.header: Cell("-", "dim") for column in _GPU_COLUMNS}
    numbers = [str(gpu_numbers.get(uuid, "?")) for uuid in gpu.uuids]
    return {
        "GPU": Cell(",".join(numbers) or "none"),
        "SHARE": Cell(_percent(gpu.actual_share)),
        "USED": Cell(_percent(gpu.used_ratio)),
        "GPU MEMORY": Cell("-" if gpu.memory_bytes is None else render_bytes(gpu.memory_bytes)),
    }


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.0f} %"

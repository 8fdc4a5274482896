"""The table of jobs. Only the lines on the screen are made, so that 200 jobs cost what 20 cost, and
the cursor is on a job, wherever its row goes. Columns have fixed widths, so that nothing jumps from
one cycle to the next; the first set that fits is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from dlsched.api.schema import JobStatus
from dlsched.cli.pages.layout import GAP, Cell, Column, columns_of, cropped
from dlsched.cli.pages.ps import (
    FORECAST_COLUMNS,
    OVER,
    STATE_STYLE,
    cpu_and_limit,
    forecast_cell,
    measured_against_target,
    result,
)
from dlsched.cli.top.curves import BUCKETS, bar
from dlsched.cli.top.feed import View
from dlsched.estimate.measured import Judged, judged

Part = tuple[str, str]
"""Text and style."""

TREND = "TREND"


class Layout(NamedTuple):
    """The columns at some width of the terminal."""

    columns: Sequence[Column]
    """The width of each is its `least`."""
    whole_target: bool
    """Whether the quantile or metric is shown with the measured value."""

    @property
    def width(self) -> int:
        return sum(one.least for one in self.columns) + len(GAP) * (len(self.columns) - 1)


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


def layout_for(width: int, name_columns: int) -> Layout:
    """The widest layout that fits; `name_columns`: the longest name."""
    layouts = [_layout(one, name_columns) for one in _CHOICES]
    return next((one for one in layouts if one.width <= width), layouts[-1])


def _layout(choice: _Choice, name_columns: int) -> Layout:
    whole = choice.target_columns == _WHOLE_TARGET_COLUMNS
    target = Column("MEASURED / TARGET" if whole else "TARGET", choice.target_columns, right=True)
    columns = [
        Column("NAME", max(8, min(name_columns, choice.name_columns))),
        Column("STATE", 10 if whole else 8),
        *([target] if target.least else []),
        Column("RESULT", 10),
        *([Column(TREND, choice.trend_columns)] if choice.trend_columns else []),
        *([Column("FORECAST", FORECAST_COLUMNS)] if choice.forecast else []),
        *([Column("CPU / LIMIT", 12)] if choice.cpu else []),
    ]
    return Layout(columns, whole)


def cells(
    job: JobStatus, trend: Sequence[float | None] | None, layout: Layout
) -> list[Sequence[Part]]:
    """The text of each column, clean, in parts of one style."""
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
    return [
        _trend(job, trend, column.least)
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
    if job.failing is not None:
        return "requests fail"
    if job.uncertain is not None:
        return job.uncertain
    if job.target is None:
        return "background" if job.background else "no target"
    if job.target.kind == "accuracy":
        return "training"
    return "no requests" if job.state == "running" else ""


def _ratio_style(ratio: float | None) -> str:
    return "green" if ratio is None else _JUDGED[judged(ratio)][0]


_PLAIN = Style()
_EMPTY = "no jobs yet: `dlsched submit FILE` adds one"


class JobTable(ScrollView, can_focus=True):
    """A line for each job below a header, one of them selected."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"job-table--selected"}
    DEFAULT_CSS = """
    JobTable { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    JobTable > .job-table--selected { background: $primary-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "move(-1000000)", "First", show=False),
        Binding("end", "move(1000000)", "Last", show=False),
    ]

    class Selected(Message):
        """Another job is selected, or none any more."""

        def __init__(self, job: str | None) -> None:
            self.job = job
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="jobs")
        self.selected: str | None = None
        self.dimmed = False
        self._jobs: Sequence[JobStatus] = ()
        self._trends: Mapping[str, Sequence[float | None]] = {}
        self._at = 0
        """The selected job's row."""

    def show(self, jobs: Sequence[JobStatus], trends: Mapping[str, Sequence[float | None]]) -> None:
        """Show these jobs in this order. A selected job that is gone is followed by the next."""
        self._jobs, self._trends = jobs, trends
        names = [job.name for job in jobs]
        self.virtual_size = Size(self.size.width, len(jobs) + 1)
        self.styles.height = len(jobs) + 1
        if self.selected in names:
            row = names.index(self.selected)
            if row != self._at:
                self._go(row)
        else:
            self._go(min(self._at, len(jobs) - 1))
        self.refresh()

    def action_move(self, rows: int) -> None:
        self._go(self._at + rows)

    def action_page(self, pages: int) -> None:
        self._go(self._at + pages * max(1, self.size.height - 2))

    def on_click(self, event: events.Click) -> None:
        row = event.y - 1 + self.scroll_offset.y
        if event.y > 0 and row < len(self._jobs):
            self._go(row)

    def _go(self, row: int) -> None:
        """Select the job of that row, and bring it onto the screen."""
        self._at = max(0, min(row, len(self._jobs) - 1))
        selected = self._jobs[self._at].name if self._jobs else None
        if selected != self.selected:
            self.selected = selected
            self.post_message(self.Selected(selected))
        shown = self.size.height - 1
        first = self.scroll_offset.y
        if self._at < first:
            self.scroll_to(y=self._at, animate=False)
        elif self._at >= first + shown > first:
            self.scroll_to(y=self._at - shown + 1, animate=False)
        self.refresh()

    # ------------------------------------------------------------------ drawing

    def _layout(self) -> Layout:
        longest = max((columns_of(job.name) for job in self._jobs), default=0)
        return layout_for(self.size.width, longest)

    def render_line(self, y: int) -> Strip:
        """A line of the screen: the header, which stays, or a job."""
        base = self.rich_style
        row, layout = y - 1 + self.scroll_offset.y, self._layout()
        if not self._jobs:
            return self._strip([(_EMPTY if y == 0 else "", "dim")], base)
        if y == 0:
            return self._strip(_header(layout), base)
        if row >= len(self._jobs):
            return self._strip([], base)
        job = self._jobs[row]
        if row == self._at:
            base += self.get_component_rich_style("job-table--selected", partial=True)
        texts = cells(job, self._trends.get(job.name), layout)
        return self._strip(_line(texts, layout.columns), base)

    def _strip(self, parts: Sequence[Part], base: Style) -> Strip:
        if self.dimmed:
            base += Style(dim=True)
        styled = [
            Segment(text, base + (Style.parse(style) if style else _PLAIN)) for text, style in parts
        ]
        return Strip(styled).adjust_cell_length(self.size.width, base)


def _header(layout: Layout) -> list[Part]:
    return _line([[(one.header[: one.least], "bold")] for one in layout.columns], layout.columns)


def _line(texts: Sequence[Sequence[Part]], columns: Sequence[Column]) -> list[Part]:
    parts: list[Part] = []
    for cell, column in zip(texts, columns, strict=True):
        if len(cell) == 1:
            text, style = cell[0]
            # The terminal may count some characters otherwise than `cropped`.
            text = set_cell_size(cropped(text, column.least), column.least)
            text = text.rstrip().rjust(len(text)) if column.right else text
            parts.append((text, style))
        else:
            padding = " " * (column.least - sum(cell_len(text) for text, _ in cell))
            parts += [*cell, (padding, "")]
        parts.append((GAP, ""))
    return parts


ORDERS = ("worst first", "by name", "by CPU")


def ordered(view: View, order: str) -> Sequence[JobStatus]:
    """The jobs in one of the `ORDERS`."""
    jobs = view.status.jobs
    if order == "by name":
        return sorted(jobs, key=lambda job: job.name)
    if order == "by CPU":
        return sorted(jobs, key=lambda job: -(job.cpu.usage_cores or 0.0))
    return sorted(jobs, key=lambda job: _badness(job, view.means.get(job.name)))


class _Rank(IntEnum):
    """What comes first."""

    FAILED = 0
    MISSED = 1
    UNKNOWN = 2
    """Blind, or not running."""
    IN_BAND = 3
    OPEN = 4
    """A training without a result yet, or a service with too few requests, or idle."""
    MET = 5
    OTHER = 6


_JUDGED: Mapping[Judged, tuple[str, _Rank]] = {
    Judged.ON_TARGET: ("green", _Rank.MET),
    Judged.JUST_ABOVE: ("yellow", _Rank.IN_BAND),
    Judged.SLOW: ("bold red", _Rank.MISSED),
}


def _badness(job: JobStatus, mean: float | None) -> tuple[_Rank, float]:
    """State of the target, then how far above it the job was in the last 30 s."""
    if job.state == "failed" or job.diverged is not None:
        return _Rank.FAILED, 0.0
    if job.state in OVER:
        return _Rank.OTHER, 0.0
    if job.failing is not None:
        return _Rank.MISSED, 0.0
    if mean is not None:
        return _JUDGED[judged(mean)][1], -mean
    if job.state != "running" or job.blind is not None:
        return _Rank.UNKNOWN, 0.0
    return (_Rank.OTHER if job.target is None else _Rank.OPEN), 0.0

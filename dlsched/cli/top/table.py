"""The table of jobs. Only the lines on the screen are made, so that 200 jobs cost what 20 cost, and
the cursor is on a job, wherever its row goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

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
from dlsched.cli.layout import GAP, columns_of, cropped
from dlsched.cli.top.rows import Column, Layout, Part, cells, layout_for

_PLAIN = Style()


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
        self.with_gpus = False
        self.dimmed = False
        self.empty = ""
        """What is said without any job."""
        self._jobs: Sequence[JobStatus] = ()
        self._trends: Mapping[str, Sequence[float | None]] = {}
        self._gpu_numbers: Mapping[str, int] = {}
        self._at = 0
        """The selected job's row."""

    def show(
        self,
        jobs: Sequence[JobStatus],
        trends: Mapping[str, Sequence[float | None]],
        gpu_numbers: Mapping[str, int],
    ) -> None:
        """Show these jobs in this order. A selected job that is gone is followed by the next."""
        self._jobs, self._trends, self._gpu_numbers = jobs, trends, gpu_numbers
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
        return layout_for(self.size.width, longest, with_gpus=self.with_gpus)

    def render_line(self, y: int) -> Strip:
        """A line of the screen: the header, which stays, or a job."""
        base = self.rich_style
        row, layout = y - 1 + self.scroll_offset.y, self._layout()
        if not self._jobs:
            return self._strip([(self.empty if y == 0 else "", "dim")], base)
        if y == 0:
            return self._strip(_header(layout), base)
        if row >= len(self._jobs):
            return self._strip([], base)
        job = self._jobs[row]
        if row == self._at:
            base += self.get_component_rich_style("job-table--selected", partial=True)
        texts = cells(job, self._trends.get(job.name), layout, self._gpu_numbers)
        return self._strip(_line(texts, layout.columns), base)

    def _strip(self, parts: Sequence[Part], base: Style) -> Strip:
        if self.dimmed:
            base += Style(dim=True)
        styled = [
            Segment(text, base + (Style.parse(style) if style else _PLAIN)) for text, style in parts
        ]
        return Strip(styled).adjust_cell_length(self.size.width, base)


def _header(layout: Layout) -> list[Part]:
    return _line([[(one.header[: one.width], "bold")] for one in layout.columns], layout.columns)


def _line(texts: Sequence[Sequence[Part]], columns: Sequence[Column]) -> list[Part]:
    parts: list[Part] = []
    for cell, column in zip(texts, columns, strict=True):
        if len(cell) == 1:
            text, style = cell[0]
            # The terminal may count some characters otherwise than `cropped`.
            text = set_cell_size(cropped(text, column.width), column.width)
            text = text.rstrip().rjust(len(text)) if column.right else text
            parts.append((text, style))
        else:
            padding = " " * (column.width - sum(cell_len(text) for text, _ in cell))
            parts += [*cell, (padding, "")]
        parts.append((GAP, ""))
    return parts

"""The increase between two readings of cumulative counts, as a latency sketch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from dlsched.model.facts import LatencySketch
from dlsched.report.buckets import LONGEST_S
from dlsched.runtime.progress.page_lines import Labels, Line, RefusedLines
from dlsched.runtime.progress.sidecar_line import MOST_REQUESTS


@dataclass(slots=True)
class Cumulative:
    """The counts of one set of labels since the server started."""

    count: float | None = None
    total: float | None = None
    edges: dict[float, float] = field(default_factory=dict)
    """Cumulative counts by upper bound."""
    is_summary: bool = False
    """Whether it has quantiles. These are of another time, so that they bound no request here."""

    @property
    def requests(self) -> float:
        return self.count if self.count is not None else max(self.edges.values(), default=0.0)

    def is_behind(self, before: Cumulative) -> bool:
        """Whether a count is lower than before."""
        shared = self.edges.keys() & before.edges.keys()
        return (
            (self.count or 0.0) < (before.count or 0.0)
            or (self.total or 0.0) < (before.total or 0.0)
            or any(self.edges[edge] < before.edges[edge] for edge in shared)
        )

    def since(self, before: Cumulative) -> Cumulative:
        """The increase; the whole counts where one decreased, since then the server restarted.
        Raises ValueError where the two are not comparable."""
        if self.is_behind(before):
            return self
        if before.edges and self.edges.keys() != before.edges.keys():
            raise ValueError("its bounds changed")
        return Cumulative(
            None if self.count is None else self.count - (before.count or 0.0),
            None if self.total is None else self.total - (before.total or 0.0),
            {edge: count - before.edges.get(edge, 0.0) for edge, count in self.edges.items()},
            self.is_summary,
        )


class SampleNames(Protocol):
    total: str
    """Sum of all latencies."""
    count: str
    """Number of requests."""
    bucket: str | None
    """A histogram's cumulative counts, by `le`."""
    value: str | None
    """A summary's values, by `quantile`."""


def series_of(
    wanted: SampleNames, lines: Iterable[Line], refused: RefusedLines
) -> dict[Labels, Cumulative]:
    """The counts by label set."""
    series: defaultdict[Labels, Cumulative] = defaultdict(Cumulative)
    for line in lines:
        head = line.head
        try:
            if head.name == wanted.bucket:
                series[head.labels].edges[_bound(head.le)] = _counted(line)
            elif head.name == wanted.count:
                series[head.labels].count = _counted(line)
            elif head.name == wanted.total:
                series[head.labels].total = _counted(line)
            elif head.quantile is not None:
                series[head.labels].is_summary = True
        except ValueError:
            refused.add(f"{head.name}: no bound, or a value below 0")
    return dict(series)


def _counted(line: Line) -> float:
    if line.value < 0:
        raise ValueError("below 0")
    return line.value


def _bound(text: str | None) -> float:
    bound = math.nan if text is None else float(text)
    if not bound >= 0.0:
        raise ValueError("no bound")
    return bound


def sketch(added: Cumulative, unit_s: float) -> LatencySketch:
    """The increase as a sketch: the mean is exact, each request lies between the bounds of its
    bucket. ValueError where the counts contradict each other, or the sum."""
    spans = tuple(_spans(added, unit_s))
    number = sum(count for _, _, count in spans) if spans else round(added.count or 0.0)
    if number > MOST_REQUESTS:
        raise ValueError(f"more than {MOST_REQUESTS} requests at once")
    if number and added.total is None:
        raise ValueError("a count without a sum")
    total_s = min((added.total or 0.0) * unit_s, LONGEST_S * number)
    return LatencySketch(number, total_s, spans=spans)


def _spans(added: Cumulative, unit_s: float) -> Iterator[tuple[float, float, int]]:
    """Lower and upper bounds in seconds, each with the number of requests between them."""
    edges = sorted(added.edges.items())
    if edges and not math.isinf(edges[-1][0]):
        edges.append((math.inf, max(added.count or 0.0, edges[-1][1])))
    below_s, so_far = 0.0, 0
    for bound, cumulative in edges:
        between, bound_s = round(cumulative) - so_far, bound * unit_s
        if between < 0:
            raise ValueError("its counts go back from one bound to the next")
        if math.isfinite(bound) and bound_s > LONGEST_S and between:
            raise ValueError("a bound beyond reason")
        if between:
            yield below_s, min(bound_s, LONGEST_S), between
        below_s, so_far = bound_s, round(cumulative)

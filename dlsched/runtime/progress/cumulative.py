"""The increase between two readings of cumulative counts, as a latency sketch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from dlsched.model.facts import LatencySketch
from dlsched.report.buckets import LONGEST_S
from dlsched.runtime.progress.page_lines import Labels, Line
from dlsched.runtime.progress.sidecar_line import MOST_REQUESTS, SUM_TOLERANCE_RATIO


@dataclass(slots=True)
class Cumulative:
    """The counts of one set of labels since the server started."""

    count: float | None = None
    total: float | None = None
    edges: dict[float, float] = field(default_factory=dict)
    """Cumulative counts by upper bound."""
    off: float = 0.0
    """How far `total` may be off, as it is printed with few digits."""

    @property
    def requests(self) -> float:
        return self.count if self.count is not None else max(self.edges.values(), default=0.0)

    def is_behind(self, before: Cumulative) -> bool:
        """Whether a count is lower than before."""
        shared = self.edges.keys() & before.edges.keys()
        return (
            self.requests < before.requests
            or (self.total or 0.0) < (before.total or 0.0)
            or any(self.edges[edge] < before.edges[edge] for edge in shared)
        )

    def since(self, before: Cumulative) -> Cumulative:
        """The increase; the whole counts where one decreased, since then the server restarted.
        Raises ValueError where the two are not comparable."""
        if self.is_behind(before):
            return self
        if before.edges and self.edges.keys() != before.edges.keys():
            raise ValueError("the bounds of the histogram's buckets changed")
        return Cumulative(
            self.requests - before.requests,
            None if self.total is None else self.total - (before.total or 0.0),
            {edge: count - before.edges.get(edge, 0.0) for edge, count in self.edges.items()},
            self.off + before.off,
        )


BETWEEN_LINES = 16
BETWEEN_LINES_RATIO = 0.01
"""Requests, and the part of all, that a program may count while it writes a page: as many as are
answered concurrently. What differs by more is of other requests."""


class SampleNames(Protocol):
    total: str
    """Sum of all latencies."""
    count: str
    """Number of requests."""
    bucket: str | None
    """A histogram's cumulative counts, by `le`."""
    value: str | None
    """A summary's values, by `quantile`."""


def series_of(wanted: SampleNames, lines: Iterable[Line]) -> dict[Labels, Cumulative]:
    """The counts by label set. Raises ValueError, in one line, for a line that is no count, and for
    a series that contradicts itself or lacks a line."""
    series: defaultdict[Labels, Cumulative] = defaultdict(Cumulative)
    for line in lines:
        head = line.head
        try:
            one = series[head.labels]
            if head.name == wanted.bucket:
                bound = _bound(line.le)
                is_twice = bound in one.edges
                one.edges[bound] = _counted(line)
            elif head.name == wanted.count:
                is_twice, one.count = one.count is not None, _counted(line)
            elif head.name == wanted.total:
                is_twice, one.total, one.off = one.total is not None, _counted(line), line.off
            else:  # a quantile, which is of another time and bounds no request here
                is_twice = False
        except ValueError:
            raise ValueError(f"{head.name}: a bucket has no bound, or a value is below 0") from None
        if is_twice:
            raise ValueError(f"{head.name}: one of the metric's series is on the page twice")
    for labels, one in series.items():
        if (fault := _fault(one)) is not None:
            values = ", ".join(f"{label}={value}" for label, value in labels)
            where = f", at {ascii(values)[1:-1][:80]}" if values else ""
            raise ValueError(f"{wanted.count}: {fault}{where}")
    return dict(series)


def _fault(one: Cumulative) -> str | None:
    """What is wrong with the counts of one series; None: nothing."""
    if one.count is None and not one.edges:
        return "the page has a sum without a count" if one.total else None
    if one.total is None and one.requests:
        return "the page has a count without a sum"
    if one.count is not None and math.inf in one.edges:
        apart = abs(one.count - one.edges[math.inf])
        if apart > max(BETWEEN_LINES, BETWEEN_LINES_RATIO * one.count):
            return "the count is not the sum of the histogram's buckets"
    return None


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
    """The increase as a sketch: the mean is as exact as the sum, each request lies between the
    bounds of its bucket. Of a sum that contradicts these, all that they allow may be true.
    ValueError where the counts contradict each other."""
    spans = tuple(_spans(added, unit_s))
    number = sum(count for _, _, count in spans) if spans else round(added.count or 0.0)
    if number > MOST_REQUESTS:
        raise ValueError(f"the page counts more than {MOST_REQUESTS} requests since the last one")
    if number and added.total is None:
        raise ValueError("the page has a count without a sum")
    total_s, off_s = (added.total or 0.0) * unit_s, added.off * unit_s
    lowest_s = sum(low_s * count for low_s, _, count in spans)
    highest_s = sum(high_s * count for _, high_s, count in spans) if spans else LONGEST_S * number
    below_s = (1.0 - SUM_TOLERANCE_RATIO) * lowest_s - off_s
    above_s = (1.0 + SUM_TOLERANCE_RATIO) * highest_s + off_s
    if not below_s <= total_s <= above_s:
        off_s = math.inf
    if off_s:
        least_s, most_s = max(lowest_s, total_s - off_s), min(highest_s, total_s + off_s)
        if not lowest_s <= total_s <= highest_s:
            total_s = (least_s + most_s) / 2.0
        off_s = max(most_s - total_s, total_s - least_s, 0.0)
    return LatencySketch(number, min(total_s, LONGEST_S * number), spans=spans, sum_error_s=off_s)


@dataclass(slots=True)
class Held:
    """Time that was added while no request was counted, as a page may be written between sum and
    count: it is of the requests that the next pages count."""

    _series: dict[Labels, Cumulative] = field(default_factory=dict)

    def sketch(self, labels: Labels, added: Cumulative, unit_s: float) -> LatencySketch:
        """The increase with what was held of its series; the empty sketch while it is held."""
        held = self._series.pop(labels, None)
        if held is not None:
            total = (added.total or 0.0) + (held.total or 0.0)
            added = replace(added, total=total, off=added.off + held.off)
        found = sketch(added, unit_s)
        if not added.total or found.count or len(self._series) >= SERIES_MAX:
            return found
        self._series[labels] = added
        return LatencySketch()


def without_quickest(latency: LatencySketch, failed: int) -> LatencySketch:
    """The answers among requests of which so many failed, it is not known which: the quickest ones,
    so that failures make no service fast. The mean is the highest that this allows."""
    left, spans, sum_s = failed, [], latency.sum_s
    for lowest_s, highest_s, count in latency.spans:
        taken = min(left, count)
        left -= taken
        sum_s -= taken * lowest_s
        if count > taken:
            spans.append((lowest_s, highest_s, count - taken))
    count = max(latency.count - failed, 0)
    if not count:
        return LatencySketch()
    return replace(latency, count=count, sum_s=max(sum_s, 0.0), spans=tuple(spans))


def _spans(added: Cumulative, unit_s: float) -> Iterator[tuple[float, float, int]]:
    """Lower and upper bounds in seconds, each with the number of requests between them."""
    edges = sorted(added.edges.items())
    if edges and not math.isinf(edges[-1][0]):
        edges.append((math.inf, max(added.count or 0.0, edges[-1][1])))
    below_s, so_far = 0.0, 0
    for bound, cumulative in edges:
        between, bound_s = round(cumulative) - so_far, bound * unit_s
        if between < 0:
            raise ValueError("the histogram's counts fall from one bound to the next")
        if math.isfinite(bound) and bound_s > LONGEST_S and between:
            raise ValueError(f"the bound of a bucket is above {LONGEST_S:g} s")
        if between:
            yield below_s, min(bound_s, LONGEST_S), between
        below_s, so_far = bound_s, round(cumulative)


IN_TURN = (
    "several processes answer in turn, each with counts of its own: use one worker, the metrics "
    "client's multi-process mode, or the access log (preset gunicorn)"
)
TURNS = 3
"""Back, forth and back again: a restart goes back once, a busy one also jumps forth once."""
TURN_PAGES = 60
"""Turns further apart have nothing to do with each other; so long nothing is believed, too."""
JUMP = 0.5
"""Part of the way back that one page must regain to be a jump, not growth."""
SERIES_MAX = 4096
"""Series beyond those of the last page are remembered up to so many."""
STARTS_MAX = 64
"""Workers of one container that are remembered."""
CLOCK_S = 2.0
"""A process that started so shortly before the last page may be a restart after it."""


@dataclass(slots=True)
class _Fall:
    """A count that went back."""

    high: float
    low: float
    page: int


@dataclass(slots=True)
class PageGrowth:
    """What counters add from page to page, and whether one process counted them.

    Behind a server with several worker processes each answer may come from another one, with counts
    of its own: they go back and forth, and a whole history would be taken for new requests. A
    restart goes back once, and grows again from there.
    """

    before: Mapping[Labels, Cumulative] | None
    """None: the first page is a baseline."""
    _page: int = 0
    _page_at_s: float | None = None
    _process_s: float | None = None
    _processes_s: set[float] = field(default_factory=set)
    _falls: dict[Labels, _Fall] = field(default_factory=dict)
    _turns: dict[Labels, list[int]] = field(default_factory=dict)
    """The pages of the last turns of each series: at a restart all of them go back once."""

    def take(
        self, now: Mapping[Labels, Cumulative], process_s: float | None, at_s: float
    ) -> dict[Labels, tuple[Cumulative, Cumulative]] | None:
        """Each series now and what to compare it with; those that only start a new comparison are
        left out. None: several processes answer in turn.

        `process_s` is when the process that answered started, where the page says it, and `at_s`
        the time of the page: both wall time.
        """
        self._page += 1
        restarted = self._other_process(process_s)
        before = self.before
        # A process may lack series that another one has: what left the page is remembered.
        keeps = before is not None and not restarted and len(before) < SERIES_MAX
        self.before = {**before, **now} if keeps and before is not None else now
        self._page_at_s = at_s
        if before is None:
            return {}
        if restarted:
            before = {}
        compared = {}
        for labels, one in now.items():
            older = before.get(labels, Cumulative())
            if not self._turned(labels, one, older):
                compared[labels] = (one, older)
        recent = {
            labels: [page for page in pages if self._page - page < TURN_PAGES][-TURNS:]
            for labels, pages in self._turns.items()
        }
        self._turns = {labels: pages for labels, pages in recent.items() if pages}
        in_turn = any(len(pages) >= TURNS for pages in self._turns.values())
        return None if in_turn else compared

    def _other_process(self, process_s: float | None) -> bool:
        """Whether the process that answered began after the last page."""
        known, last = self._processes_s, self._process_s
        if process_s is None or process_s == last:
            return False
        self._process_s = process_s
        began_since = self._page_at_s is not None and process_s > self._page_at_s - CLOCK_S
        if last is not None and (process_s in known or not began_since):
            self._turns[()] = [self._page] * TURNS
        if len(known) < STARTS_MAX:
            known.add(process_s)
        return last is not None and process_s > last and began_since

    def _turned(self, labels: Labels, now: Cumulative, older: Cumulative) -> bool:
        """Whether the series went back, or jumped forth to where it had been."""
        fall = self._falls.get(labels)
        if now.is_behind(older):
            self._falls[labels] = _Fall(older.requests, now.requests, self._page)
            self._turns.setdefault(labels, []).append(self._page)
            return True
        if fall is None:
            return False
        if self._page - fall.page >= TURN_PAGES:
            del self._falls[labels]
            return False
        added = now.requests - older.requests
        if now.requests >= fall.high and added > JUMP * (fall.high - fall.low):
            del self._falls[labels]
            self._turns.setdefault(labels, []).append(self._page)
            return True
        return False

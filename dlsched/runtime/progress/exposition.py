"""Two successive Prometheus pages: what happened in between, as latencies or as a metric.

Only lines that begin with a wanted name are parsed, and a bounded number of them.

The number of requests and their sum (so the mean) are exact. Of a request in a classic histogram
the bounds of its bucket are known. A summary's quantiles are those of a time of its own, often the
last ten minutes, so that it yields the mean alone, as do a sum and a count, and a counter of
latencies over one of requests.

Failed requests are counted apart: those of the series whose labels say so, or of another counter.
Their latencies are none of answers.

What cannot be right is refused with the reason: several models in one metric, several processes
that answer in turn, a unit by which requests take hours. A page of which a
wanted line or series cannot be read gives no number; the next one counts from the last that did.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlsched.config.metrics.keys import CANDIDATES_MAX
from dlsched.config.metrics.pattern import compiled
from dlsched.estimate.sketch import merge
from dlsched.model.facts import LatencySketch
from dlsched.model.sources import LabelFilter, Metric
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Target
from dlsched.model.units import closest
from dlsched.runtime.progress.cumulative import (
    IN_TURN,
    Cumulative,
    Held,
    PageGrowth,
    series_of,
    without_quickest,
)
from dlsched.runtime.progress.page_lines import (
    Head,
    Labels,
    Line,
    LineParser,
    PageReading,
    names_of,
    wanted_lines,
)
from dlsched.runtime.progress.sidecar_line import MOST_REQUESTS

SHORTEST_S = 1e-6
"""No request over a network is faster on average."""
LONGEST_MEAN_S = 6 * 3600.0
"""Longer requests than that are jobs."""


def improbable(series: Iterable[Cumulative], unit_s: float) -> str | None:
    """Why these counts since the start cannot have that unit; None: they can."""
    whole = [(one.requests, one.total * unit_s) for one in series if one.total is not None]
    count, total_s = sum(count for count, _ in whole), sum(total_s for _, total_s in whole)
    if count < 1 or total_s <= 0.0 or SHORTEST_S <= total_s / count <= LONGEST_MEAN_S:
        return None
    mean = f"{total_s / count * 1e6:.3g} us"
    if total_s / count > LONGEST_MEAN_S:
        mean = f"{total_s / count / 3600:.3g} h"
    return f"the mean latency would be {mean}: give the metric's `unit` (s, ms or us)"


class Gauge:
    """One gauge, of which each process of the training may have a series."""

    def __init__(self) -> None:
        self._last: str | None = None
        """The last value as text, in which nan equals nan."""

    def take(self, values: Sequence[float]) -> float | None:
        """The value, if it is new; raises ValueError, in one line, where series differ. Zero, and a
        value that is not finite, count after another one alone: gauges begin with 0 or nan."""
        texts = {str(value + 0.0) for value in values}  # -0 is 0
        if len(texts) > 1:
            raise ValueError(f"the metric has {len(values)} series that differ, must be one")
        if not texts or texts == {self._last}:
            return None
        if self._last is None and (values[0] == 0.0 or not math.isfinite(values[0])):
            return None
        (self._last,) = texts
        return values[0]


_TYPES: Mapping[type, tuple[str, ...]] = {
    LatencyTarget: ("histogram", "summary"),
    AccuracyTarget: ("gauge", "untyped", "unknown"),
}
"""What a page calls the metrics that such a target may be read from."""

_UNITS_S = {
    suffix: unit_s
    for unit_s, suffixes in (
        (1e-9, ("_ns", "_nsec", "_nsecs", "_nanos", "_nanoseconds")),
        (1e-6, ("_us", "_usec", "_usecs", "_micros", "_microseconds")),
        (1e-3, ("_ms", "_msec", "_msecs", "_millis", "_milliseconds")),
        (60.0, ("_minutes",)),
        (3600.0, ("_hours",)),
    )
    for suffix in suffixes
}
_PROCESS = "process_start_time_seconds"
"""Prometheus' own clients say by it which process answers."""
_MOST_COUNTED = 2.0**53
"""Larger integers have no exact float."""
_ANY_LATENCY = "http_request_duration_seconds"
"""The names on a page that no preset knows are shown by their likeness to this one."""
_VALUES_SHOWN = 4
"""Values of a label in one message."""
_LEFT_OUT_MAX = 64
"""Label sets remembered of the series that filters leave out: those that a message may name."""
_REMEDY_SERIES = "none of the metric's numbers is read: choose series by `where`"


@dataclass(frozen=True, slots=True)
class PageDelta:
    latency: LatencySketch | None = None
    value: float | None = None
    """A gauge's value, finite or not; None: none, or unchanged."""
    bad_lines: int = 0
    """1 where a line of it, and so the page, is refused."""
    refused: str | None = None
    """Why that line is refused."""
    absent: bool = False
    """Whether it has no such metric at all."""
    problem: str | None = None
    """Why the page is not read, in one line."""
    hides_failures: bool = False
    """Whether nothing on it says which requests failed."""


class Candidate:
    """One metric that a page may have: its sample names, unit and filters."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        name = metric.name or ""
        if metric.total is not None and metric.count is not None:
            self.total, self.count, self.bucket, self.value = metric.total, metric.count, None, None
        else:
            self.total, self.count = f"{name}_sum", f"{name}_count"
            self.bucket, self.value = f"{name}_bucket", name
        self.errors = metric.errors
        self.beside = () if metric.beside is None else spellings(metric.beside)
        """Names of lines of which the page must have one."""
        self._failed = [(one, compiled(one.pattern)) for one in metric.failed]
        self._answered = [
            (one.label, compiled(one.otherwise)) for one in metric.failed if one.otherwise
        ]
        suffixed = metric.total or name
        self.unit_s = unit_of(suffixed) if metric.unit_s is None else metric.unit_s
        self._filters = [(one, compiled(one.pattern)) for one in metric.where]
        self.left_out: set[Labels] = set()
        """Some of the series that the filters leave out."""

    @property
    def shown(self) -> str:
        """The metric as messages call it."""
        return self.metric.name or f"{self.metric.total} and {self.metric.count}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the lines that are read."""
        names = (self.total, self.count, self.bucket, self.value)
        return tuple(name for name in names if name is not None)

    def keeps(self, head: Head) -> bool:
        """Whether a line with this head counts."""
        given = dict(head.labels)
        if head.name == self.errors:
            # Of what the filters name, a counter of failures may have less.
            passes = (
                one.label not in given or _matches(one, each, given) for one, each in self._filters
            )
            return all(passes) and self.has_failed(given) is not False
        if head.name not in self.names:
            return False
        if all(_matches(one, each, given) for one, each in self._filters):
            return True
        if len(self.left_out) < _LEFT_OUT_MAX:
            self.left_out.add(head.labels)
        return False

    def has_failed(self, labels: Mapping[str, str]) -> bool | None:
        """Whether the requests in the series with these labels failed; None: no label says that."""
        known = [(one, each) for one, each in self._failed if labels.get(one.label)]
        return any(_matches(one, each, labels) for one, each in known) if known else None

    def is_unclear(self, labels: Mapping[str, str]) -> bool:
        """Whether a status, which is none of a failure, is none that is known of answers either."""
        for label, answered in self._answered:
            value = labels.get(label, "").encode("utf-8", "replace")
            if value and answered.fullmatch(value) is None:
                return True
        return False


def spellings(metric: str) -> tuple[str, ...]:
    """How lines of that metric may begin, whatever its type."""
    return (metric, f"{metric}_count", f"{metric}_sum", f"{metric}_bucket")


def _matches(one: LabelFilter, expression: Any, labels: Mapping[str, str]) -> bool:
    value = labels.get(one.label, "").encode("utf-8", "replace")
    return (expression.fullmatch(value) is None) == one.excludes


def unit_of(name: str) -> float:
    """The unit that a metric's name ends in, in seconds."""
    base = name.removesuffix("_total").removesuffix("_sum").removesuffix("_histogram")
    return next((unit for suffix, unit in _UNITS_S.items() if base.endswith(suffix)), 1.0)


class Pages:
    """The successive pages of one container start."""

    def __init__(
        self,
        metrics: Sequence[Metric],
        *,
        from_end: bool,
        target: Target | None = None,
        hint: str | None = None,
    ) -> None:
        """Of `metrics` the first one that a page has is read. `from_end`: the first page is a
        baseline. `hint`: what helps where there are several models."""
        self._candidates = [Candidate(metric) for metric in metrics]
        # More than one can name are those of all presets.
        self._recognises = len(metrics) > CANDIDATES_MAX
        names = {_PROCESS}
        for one in self._candidates:
            names.update(one.names)
            names.update(filter(None, (one.errors,)))
            names.update(one.beside)
        self._beside = frozenset(name for one in self._candidates for name in one.beside)
        self._wanted = wanted_lines(names)
        gauges = frozenset(one.value for one in self._candidates if one.value is not None)
        self._parser = LineParser(self._keeps, gauges)
        self._growth = PageGrowth(None if from_end else {})
        self._errors_growth = PageGrowth(None if from_end else {})
        self._held = Held()
        self._value = Gauge()
        self._target = target
        self._hint = hint
        types = _TYPES.get(type(target))
        self._names = None if types is None else names_of(types)
        self._found = False
        """Whether a page had the metric."""

    def take(self, page: bytes, at_s: float = 0.0) -> PageDelta:
        """What this page adds to the previous one; never raises for its content. `at_s`: wall
        time."""
        reading = self.begin()
        reading.feed(page)
        return self.end(reading, at_s)

    def begin(self) -> PageReading:
        """What takes the bytes of the next page."""
        return PageReading(self._wanted, self._parser, None if self._found else self._names)

    def end(self, reading: PageReading, at_s: float) -> PageDelta:
        """What that page adds to the previous one."""
        try:
            delta = self._read(reading, at_s)
        except ValueError as why:
            problem = f"{why}: {_REMEDY_SERIES}"
            return PageDelta(bad_lines=1, refused=str(why), problem=problem)
        if delta.absent:
            delta = replace(delta, problem=f"{delta.problem}{self._instead(reading.named)}")
        self._found = self._found or not delta.absent
        return delta

    def _keeps(self, head: Head) -> bool:
        # Each candidate is asked, since it remembers what it leaves out.
        kept = [one.keeps(head) for one in self._candidates]
        return head.name == _PROCESS or head.name in self._beside or any(kept)

    def _instead(self, named: Iterable[str]) -> str:
        """What the page has in place of the metric, with the remedy."""
        wanted = _ANY_LATENCY if self._recognises else self._candidates[0].metric.name
        found = closest(wanted or "", sorted(named))
        return f"; found: {', '.join(found)}: choose one by `name`" if found else ""

    def _read(self, reading: PageReading, at_s: float) -> PageDelta:
        reading.end()
        if reading.refused is not None:
            raise ValueError(reading.refused)
        by_name, left_out = reading.by_name, reading.left_out
        candidates = [
            one
            for one in self._candidates
            if not one.beside or not by_name.keys().isdisjoint(one.beside)
        ]
        for wanted in candidates:
            lines = [line for name in wanted.names for line in by_name.get(name, ())]
            if len(self._candidates) > 1:  # another one may want other series of that name
                heads = {id(line.head): line.head for line in lines}
                kept = {each for each, head in heads.items() if wanted.keeps(head)}
                lines = [line for line in lines if id(line.head) in kept]
            if lines:
                counted = wanted.errors in by_name or wanted.errors in left_out
                return self._delta(wanted, lines, by_name, at_s, counted=counted)
        for wanted in candidates:
            if not left_out.isdisjoint(wanted.names):
                return self._nothing_passes(wanted)
        if self._recognises:
            return PageDelta(
                problem="none of the page's metrics is one that a preset reads", absent=True
            )
        known = " or ".join(one.shown for one in self._candidates)
        return PageDelta(problem=f"the page has no metric {known}", absent=True)

    def _nothing_passes(self, wanted: Candidate) -> PageDelta:
        """No series counts: a mistake where a value is asked for, else there was no request."""
        for one in wanted.metric.where:
            if not one.excludes:
                there = {dict(labels).get(one.label, "") for labels in wanted.left_out}
                return PageDelta(
                    problem=f"no series of {wanted.shown} has {one}; the page has {_list(there)}"
                )
        self._growth.before = self._growth.before or {}
        return PageDelta(LatencySketch())

    def _delta(
        self,
        wanted: Candidate,
        lines: Sequence[Line],
        by_name: Mapping[str, list[Line]],
        at_s: float,
        *,
        counted: bool,
    ) -> PageDelta:
        """`counted`: whether the page has the counter of failures."""
        series = series_of(wanted, lines)
        if not any(one.count is not None or one.edges for one in series.values()):
            return self._gauge(wanted, lines)
        if (problem := self._several(wanted, series)) is not None:
            self._growth.before = self._errors_growth.before = None
            return PageDelta(problem=problem)
        counters = _failures(by_name.get(wanted.errors or "", ()))
        process = [line.value for line in by_name.get(_PROCESS, ())]
        process_s = process[0] if len(process) == 1 else None
        compared = self._growth.take(series, process_s, at_s)
        errors = self._errors_growth.take(counters, process_s, at_s)
        if compared is None or errors is None:
            return PageDelta(problem=IN_TURN)
        if (problem := improbable(series.values(), wanted.unit_s)) is not None:
            return PageDelta(problem=f"{wanted.shown}: {problem}")
        known = {labels: wanted.has_failed(dict(labels)) for labels in series}
        by_label = any(one is not None for one in known.values())
        unclear = any(
            known[labels] is False and one.requests and wanted.is_unclear(dict(labels))
            for labels, one in series.items()
        )
        answers, failed = [], 0.0
        for labels, (now, before) in compared.items():
            since = now.since(before)
            if known[labels]:
                failed += since.requests
            else:
                answers.append(self._held.sketch(labels, since, wanted.unit_s))
        latency = merge(*answers)
        if not by_label:
            failed = sum(now.since(before).requests for now, before in errors.values())
            if wanted.metric.errors_timed:
                latency = without_quickest(latency, round(failed))
        return PageDelta(
            replace(latency, errors=min(round(failed), MOST_REQUESTS)),
            # A counter of failures alone may begin with the first of them.
            hides_failures=(unclear or not by_label)
            and not counted
            and (wanted.errors is None or bool(wanted.metric.failed)),
        )

    def _several(self, wanted: Candidate, series: Mapping[Labels, Cumulative]) -> str | None:
        """Why these series are not one model's; None: they are."""
        per = wanted.metric.per
        if per is None:
            return None
        # A model without requests changes nothing.
        models = {dict(labels).get(per, "") for labels, one in series.items() if one.requests}
        if len(models) < 2:
            return None
        hint = "" if self._hint is None else f" ({self._hint})"
        return (
            f"the page's requests are of several {per}: {_list(models)}: choose by "
            f"where.{per}{hint}"
        )

    def _gauge(self, wanted: Candidate, lines: Iterable[Line]) -> PageDelta:
        values = [line.value for line in lines if line.head.quantile is None]
        if not values:
            return PageDelta(
                problem=f"{wanted.shown} has only quantiles, over a time that the program chose, "
                "and neither sum nor count: name another metric"
            )
        if isinstance(self._target, LatencyTarget) and values:
            return PageDelta(
                problem=f"{wanted.shown} is one number, not a histogram, summary or ratio of "
                "latencies: name another metric"
            )
        try:
            return PageDelta(value=self._value.take(values))
        except ValueError as problem:
            return PageDelta(problem=str(problem))


def _failures(lines: Iterable[Line]) -> dict[Labels, Cumulative]:
    """The counts of a counter of failures; ValueError for no count."""
    counts: defaultdict[Labels, float] = defaultdict(float)
    for line in lines:
        if not 0 <= line.value <= _MOST_COUNTED:
            raise ValueError(f"{line.head.name} is {line.value:g}, must be a count of at least 0")
        counts[line.head.labels] += line.value
    return {labels: Cumulative(count) for labels, count in counts.items()}


def _list(values: Iterable[str]) -> str:
    """The values for a message: a few, escaped and cut."""
    found = sorted(values)
    texts = [ascii(one)[1:-1][:40] or "(none)" for one in found[:_VALUES_SHOWN]]
    more = f" and {len(found) - _VALUES_SHOWN} more" if len(found) > _VALUES_SHOWN else ""
    return ", ".join(texts) + more

"""Two successive Prometheus pages: what happened in between, as latencies or as a metric.

Only lines that begin with a wanted name are parsed, and a bounded number of them.

The number of requests and their sum (so the mean) are exact. Requests of a classic histogram are
spread evenly between two bounds, as in Prometheus' own `histogram_quantile`; those above the last
bound are placed by the rest of the sum. A summary is placed by its quantiles. A sum and a count
alone yield only the mean.

Known servers: vLLM, `vllm:e2e_request_latency_seconds` (histogram; its docs/design/metrics.md), and
Triton, `nv_inference_request_summary_us` where summaries are on, else
`nv_inference_request_duration_us` over `nv_inference_request_success` (docs/user_guide/metrics.md).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Line

from dlsched.estimate.sketch import merge
from dlsched.model.facts import LatencySketch
from dlsched.runtime.progress.cumulative import Cumulative, sketch
from dlsched.runtime.progress.gauge import Gauge
from dlsched.runtime.progress.sidecar_line import MOST_REQUESTS

LINE_BYTES = 2048
"""Longer lines are not parsed."""
MOST_LINES = 1024
"""Wanted lines parsed of one page at most."""

_UNITS_S = {
    "_milliseconds": 1e-3,
    "_ms": 1e-3,
    "_microseconds": 1e-6,
    "_us": 1e-6,
}
_SERIES_LABELS = ("le", "quantile")
_MOST_SHOWN = 40
_MOST_COUNTED = 2.0**53
"""Larger integers have no exact float."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LatencyMetrics:
    """The sample names of one server's latency, and their unit."""

    total: str
    """Sum of all latencies."""
    count: str
    """Number of requests."""
    bucket: str | None = None
    """A histogram's cumulative counts, by `le`."""
    value: str | None = None
    """A summary's values, by `quantile`, or a gauge."""
    errors: str | None = None
    """Number of requests that failed."""
    unit_s: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        names = (self.total, self.count, self.bucket, self.value, self.errors)
        return tuple(name for name in names if name is not None)


def family(name: str, errors: str | None = None) -> LatencyMetrics:
    """A histogram, summary or gauge of that name; its suffix gives the unit."""
    unit_s = next((unit for suffix, unit in _UNITS_S.items() if name.endswith(suffix)), 1.0)
    return LatencyMetrics(f"{name}_sum", f"{name}_count", f"{name}_bucket", name, errors, unit_s)


_TRITON_FAILED = "nv_inference_request_failure"
KNOWN = (
    family("vllm:e2e_request_latency_seconds"),
    family("nv_inference_request_summary_us", _TRITON_FAILED),
    LatencyMetrics(
        "nv_inference_request_duration_us",
        "nv_inference_request_success",
        errors=_TRITON_FAILED,
        unit_s=1e-6,
    ),
)
"""Metrics of known servers; the first one present is read."""


@dataclass(frozen=True, slots=True)
class PageDelta:
    """What a page adds to the previous one."""

    latency: LatencySketch | None = None
    value: float | None = None
    """A gauge's value, finite or not; None: none, or unchanged."""
    bad_lines: int = 0
    refused: str | None = None
    """Why the first bad line was refused."""
    problem: str | None = None
    """Why the page has no such metric, in one line."""


class Pages:
    """The successive pages of one container start."""

    def __init__(self, name: str | None, *, from_end: bool) -> None:
        """`name`: the metric; None: that of a known server. `from_end`: the first page is a
        baseline."""
        self._candidates = KNOWN if name is None else (family(name),)
        self._gauges = {wanted.value for wanted in self._candidates}
        names = {each for wanted in self._candidates for each in wanted.names}
        spelled = b"|".join(re.escape(each).encode() for each in sorted(names, reverse=True))
        self._lines = re.compile(rb"^(?:%s)[{ \t][^\n]*" % spelled, re.MULTILINE)
        self._before: dict[Labels, Cumulative] | None = None if from_end else {}
        self._errors_before: float | None = None if from_end else 0.0
        self._value = Gauge()

    def take(self, page: bytes) -> PageDelta:
        """What this page adds to the previous one; never raises for its content."""
        bad = _Bad()
        by_name: defaultdict[str, list[Line]] = defaultdict(list)
        found = islice(self._lines.finditer(page), MOST_LINES + 1)
        for number, match in enumerate(found):
            if number == MOST_LINES:
                bad.add(f"more than {MOST_LINES} lines of one metric")
            elif (line := _parsed(match.group(), bad, self._gauges)) is not None:
                by_name[line.name].append(line)
        for wanted in self._candidates:
            if any(name in by_name for name in wanted.names if name != wanted.errors):
                return self._delta(wanted, by_name, bad)
        known = " or ".join(wanted.value or wanted.total for wanted in self._candidates)
        return PageDelta(None, None, bad.lines, bad.why, f"there is no {known} among its metrics")

    def _delta(
        self, wanted: LatencyMetrics, by_name: Mapping[str, list[Line]], bad: _Bad
    ) -> PageDelta:
        series = _gathered(wanted, by_name, bad)
        if not any(one.count is not None or one.edges for one in series.values()):
            return self._gauge(by_name.get(wanted.value or "", ()), bad)
        before, self._before = self._before, series
        errors = _failures(by_name.get(wanted.errors or "", ()), bad)
        errors_before, self._errors_before = self._errors_before, errors
        if before is None or errors_before is None:
            return PageDelta(LatencySketch(), None, bad.lines, bad.why)
        failed = errors - errors_before if errors >= errors_before else errors
        sketches = [LatencySketch(errors=min(round(failed), MOST_REQUESTS))]
        for labels, one in series.items():
            try:
                sketches.append(sketch(one.since(before.get(labels, Cumulative())), wanted.unit_s))
            except ValueError as why:
                bad.add(str(why))
        return PageDelta(merge(*sketches), None, bad.lines, bad.why)

    def _gauge(self, lines: Iterable[Line], bad: _Bad) -> PageDelta:
        values = [line.value for line in lines if "quantile" not in line.labels]
        try:
            return PageDelta(None, self._value.take(values), bad.lines, bad.why)
        except ValueError as problem:
            return PageDelta(None, None, bad.lines, bad.why, str(problem))


class _Bad:
    """Counts refused lines, and keeps the first reason."""

    def __init__(self) -> None:
        self.lines = 0
        self.why: str | None = None

    def add(self, why: str) -> None:
        self.lines += 1
        self.why = self.why or why


def _parsed(line: bytes, bad: _Bad, gauges: Collection[str | None]) -> Line | None:
    """The line's sample. Of `gauges` alone it may be nan or inf: a training that diverged."""
    if len(line) > LINE_BYTES:
        bad.add(f"a line of more than {LINE_BYTES} bytes")
        return None
    try:
        (metric,) = text_string_to_metric_families(line.decode())
        (sample,) = metric.samples
        value = float(sample.value)
    except Exception:  # noqa: BLE001 - whatever the parser makes of a container's bytes
        bad.add(f"not a sample: {_shown(line)}")
        return None
    if math.isnan(value) and "quantile" in sample.labels:
        return None  # a summary without recent requests
    gauge = sample.name in gauges and "quantile" not in sample.labels
    if not math.isfinite(value) and not gauge:
        bad.add(f"not a finite number: {_shown(line)}")
        return None
    return Line(sample.name, sample.labels, value)


def _gathered(
    wanted: LatencyMetrics, by_name: Mapping[str, list[Line]], bad: _Bad
) -> dict[Labels, Cumulative]:
    """The counts by label set."""
    series: defaultdict[Labels, Cumulative] = defaultdict(Cumulative)
    names = (wanted.count, wanted.total, wanted.bucket, wanted.value)
    for line in (line for name in names if name is not None for line in by_name.get(name, ())):
        labels = tuple(sorted(p for p in line.labels.items() if p[0] not in _SERIES_LABELS))
        try:
            if line.name == wanted.bucket:
                series[labels].edges[_bound(line.labels["le"])] = _counted(line)
            elif line.name == wanted.count:
                series[labels].count = _counted(line)
            elif line.name == wanted.total:
                series[labels].total = _counted(line)
            elif "quantile" in line.labels:
                series[labels].quantiles[_bound(line.labels["quantile"], 1.0)] = _counted(line)
        except (KeyError, ValueError):
            bad.add(f"{line.name}: no bound, or a value below 0")
    return dict(series)


def _failures(lines: Iterable[Line], bad: _Bad) -> float:
    """Number of failed requests, over all series."""
    failed = 0.0
    for line in lines:
        if 0 <= line.value <= _MOST_COUNTED:
            failed += line.value
        else:
            bad.add(f"{line.name}: {line.value:g} is no count")
    return failed


def _counted(line: Line) -> float:
    if line.value < 0:
        raise ValueError("below 0")
    return line.value


def _bound(text: str, most: float = math.inf) -> float:
    bound = float(text)
    if not 0.0 <= bound <= most:
        raise ValueError("no bound")
    return bound


def _shown(line: bytes) -> str:
    text = ascii(line.decode(errors="replace"))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."

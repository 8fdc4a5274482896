"""A Prometheus page's text, read twice: what happened in between, as latencies or as a metric.

Owns which lines are wanted, and how counts that only ever grow become a `LatencySketch`. It must
not do I/O, and it trusts nothing: of a page only the lines that begin with a wanted name are
parsed, and of those a bounded number.

What is exact and what is not: the number of requests and their sum (so the mean) are as the
server counted them. A classic histogram tells only between which two bounds a request lies, so its
requests are spread evenly in between, as Prometheus' own `histogram_quantile` takes them to be,
and a quantile is as coarse as the server's bucket that it falls in. What lies above the last
bound is placed by what the sum leaves over. A summary is placed by its quantiles, which the
server computes over a window of its own. From a sum and a count alone only the mean is known: no
quantile is read of it, and none is invented.

Servers known by name: vLLM, `vllm:e2e_request_latency_seconds` (histogram; its design document
docs/design/metrics.md), and Triton, `nv_inference_request_summary_us` where summaries are on, else
`nv_inference_request_duration_us` over `nv_inference_request_success` (its docs/user_guide/
metrics.md).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as Line

from dlsched.estimate.sketch import merge
from dlsched.model.facts import LatencySketch
from dlsched.runtime.progress.cumulative import Cumulative, sketch
from dlsched.runtime.progress.sidecar_line import MOST_REQUESTS

LINE_BYTES = 2048
"""A longer line is not parsed."""
MOST_LINES = 1024
"""So many wanted lines are parsed of a page."""

_UNITS_S = {
    "_milliseconds": 1e-3,
    "_ms": 1e-3,
    "_microseconds": 1e-6,
    "_us": 1e-6,
}
_SERIES_LABELS = ("le", "quantile")
_MOST_SHOWN = 40
_MOST_COUNTED = 2.0**53
"""Beyond it not every whole number is one here, so a count cannot be told from the next."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The samples that tell one server's latency, and their unit."""

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
        """Every sample's name."""
        told = (self.total, self.count, self.bucket, self.value, self.errors)
        return tuple(name for name in told if name is not None)


def family(name: str, errors: str | None = None) -> Wanted:
    """A histogram, a summary or a gauge by that name; its unit is told by its suffix."""
    unit_s = next((unit for suffix, unit in _UNITS_S.items() if name.endswith(suffix)), 1.0)
    return Wanted(f"{name}_sum", f"{name}_count", f"{name}_bucket", name, errors, unit_s)


_TRITON_FAILED = "nv_inference_request_failure"
KNOWN = (
    family("vllm:e2e_request_latency_seconds"),
    family("nv_inference_request_summary_us", _TRITON_FAILED),
    Wanted(
        "nv_inference_request_duration_us",
        "nv_inference_request_success",
        errors=_TRITON_FAILED,
        unit_s=1e-6,
    ),
)
"""Of servers that are recognised, in this order: the first that is there is read."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a page tells beyond the one before it."""

    latency: LatencySketch | None = None
    value: float | None = None
    """A gauge's value; None: there is none, or it is what it was."""
    bad_lines: int = 0
    refused: str | None = None
    """Why the first bad line was refused."""
    trouble: str | None = None
    """Why the page tells nothing, in one line."""


class Pages:
    """The pages of one start of one container, one after the other."""

    def __init__(self, name: str | None, *, from_end: bool) -> None:
        """`name`: the metric; None: of a known server. `from_end`: the first page only counts."""
        self._candidates = KNOWN if name is None else (family(name),)
        names = {each for wanted in self._candidates for each in wanted.names}
        spelled = b"|".join(re.escape(each).encode() for each in sorted(names, reverse=True))
        self._lines = re.compile(rb"^(?:%s)[{ \t][^\n]*" % spelled, re.MULTILINE)
        self._before: dict[Labels, Cumulative] | None = None if from_end else {}
        self._errors_before: float | None = None if from_end else 0.0
        self._value: float | None = None

    def take(self, page: bytes) -> Told:
        """What this page tells beyond the one before; never raises for what is in it."""
        bad = _Bad()
        by_name: defaultdict[str, list[Line]] = defaultdict(list)
        found = islice(self._lines.finditer(page), MOST_LINES + 1)
        for number, match in enumerate(found):
            if number == MOST_LINES:
                bad.add(f"more than {MOST_LINES} lines of one metric")
            elif (line := _parsed(match.group(), bad)) is not None:
                by_name[line.name].append(line)
        for wanted in self._candidates:
            if any(name in by_name for name in wanted.names if name != wanted.errors):
                return self._told(wanted, by_name, bad)
        known = " or ".join(wanted.value or wanted.total for wanted in self._candidates)
        return Told(None, None, bad.lines, bad.why, f"there is no {known} among its metrics")

    def _told(self, wanted: Wanted, by_name: Mapping[str, list[Line]], bad: _Bad) -> Told:
        series = _gathered(wanted, by_name, bad)
        if not any(one.count is not None or one.edges for one in series.values()):
            return self._gauge(by_name.get(wanted.value or "", ()), bad)
        before, self._before = self._before, series
        errors = _failures(by_name.get(wanted.errors or "", ()), bad)
        errors_before, self._errors_before = self._errors_before, errors
        if before is None or errors_before is None:
            return Told(LatencySketch(), None, bad.lines, bad.why)
        failed = errors - errors_before if errors >= errors_before else errors
        sketches = [LatencySketch(errors=min(round(failed), MOST_REQUESTS))]
        for labels, one in series.items():
            try:
                sketches.append(sketch(one.since(before.get(labels, Cumulative())), wanted.unit_s))
            except ValueError as why:
                bad.add(str(why))
        return Told(merge(*sketches), None, bad.lines, bad.why)

    def _gauge(self, lines: Iterable[Line], bad: _Bad) -> Told:
        values = [line.value for line in lines if "quantile" not in line.labels]
        if len(values) != 1:
            trouble = f"{len(values)} series of that metric, and one is wanted" if values else None
            return Told(None, None, bad.lines, bad.why, trouble)
        changed, self._value = values[0] != self._value, values[0]
        return Told(None, values[0] if changed else None, bad.lines, bad.why)


class _Bad:
    """Counts what was refused, and keeps the first reason."""

    def __init__(self) -> None:
        self.lines = 0
        self.why: str | None = None

    def add(self, why: str) -> None:
        self.lines += 1
        self.why = self.why or why


def _parsed(line: bytes, bad: _Bad) -> Line | None:
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
        return None  # a summary's way to say that nothing was asked of late
    if not math.isfinite(value):
        bad.add(f"not a finite number: {_shown(line)}")
        return None
    return Line(sample.name, sample.labels, value)


def _gathered(
    wanted: Wanted, by_name: Mapping[str, list[Line]], bad: _Bad
) -> dict[Labels, Cumulative]:
    """The counts by their labels."""
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
    """How many requests have failed, over all series."""
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

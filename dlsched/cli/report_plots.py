"""The report's plots as SVG elements. They have no script and no style of their own: classes are in
report.css."""

from __future__ import annotations

import html
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from dlsched.api.review_schema import JobReview
from dlsched.cli.output import one_line
from dlsched.model.spec import BAND_RATIO

CELLS_MAX = 240
"""Columns of a plot over time: finer ones are not visible."""
_STRIP_WIDTH, _STRIP_HEIGHT = 300, 22
_FAST, _BAD = 0.5, 2.0
"""Measured over target at which the colour changes."""
LAYERS = "abcdefgh"
"""Classes of the stacked layers; further jobs are drawn together."""


def escaped(text: str) -> str:
    """Text from anywhere as HTML, on one line and without control characters."""
    return html.escape(one_line(text), quote=True)


def svg(width: float, height: float, parts: Iterable[str], title: str) -> str:
    """An image of that size in user units; `title` is its text alternative."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img"><title>{escaped(title)}</title>'
        f"{''.join(parts)}</svg>"
    )


def rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"/>'


def _text(x: float, y: float, label: str, anchor: str, kind: str = "") -> str:
    classed = f' class="{kind}"' if kind else ""
    return f'<text{classed} x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escaped(label)}</text>'


def strip(job: JobReview) -> str:
    """Measured over target in the course of time, as colours; a silence differs from an absence."""
    ratio = _thinned(job.ratio, max)
    ran = _thinned(job.used_cores, max)
    kinds = [
        _colour(one) or (None if used is None else "silent")
        for one, used in zip(ratio, ran, strict=True)
    ]
    width = _STRIP_WIDTH / max(1, len(kinds))
    parts = [rect(0, 0, _STRIP_WIDTH, _STRIP_HEIGHT, "none")]
    at = 0
    for kind, group in itertools.groupby(kinds):
        count = len(list(group))
        if kind is not None:
            parts.append(rect(at * width, 0, count * width + 0.2, _STRIP_HEIGHT, kind))
        at += count
    return svg(_STRIP_WIDTH, _STRIP_HEIGHT, parts, f"{job.name} over time")


def _colour(ratio: float | None) -> str | None:
    if ratio is None:
        return None
    if ratio <= 1.0:
        return "fast" if ratio <= _FAST else "met"
    return "near" if ratio <= 1.0 + BAND_RATIO else "slow" if ratio <= _BAD else "bad"


def stacked(
    jobs: Sequence[JobReview], capacity_cores: float, ticks: Sequence[tuple[float, str]]
) -> str:
    """Used cores of the jobs, one on the other, and the capacity."""
    width, height, left, top = 1040.0, 250.0, 34.0, 10.0
    bottom = height - 20.0
    shown, others = jobs[: len(LAYERS)], jobs[len(LAYERS) :]
    layers = [_thinned(job.used_cores, statistics.fmean) for job in shown]
    kinds = list(LAYERS[: len(shown)])
    if others:
        by_slice = zip(*(one.used_cores for one in others), strict=True)
        together = [math.fsum(one or 0.0 for one in values) for values in by_slice]
        layers.append(_thinned(together, statistics.fmean))
        kinds.append("rest")
    columns = len(layers[0]) if layers else 0
    sums = [math.fsum(layer[at] or 0.0 for layer in layers) for at in range(columns)]
    most = 1.08 * max(capacity_cores, *sums, 0.1) if sums else capacity_cores

    def y(cores: float) -> float:
        return bottom - (bottom - top) * cores / most

    parts = []
    for cores in _steps(most):
        parts.append(_line(left, y(cores), width, y(cores), "grid"))
        parts.append(_text(left - 6, y(cores) + 4, f"{cores:g}", "end"))
    step = (width - left) / max(1, columns)
    below = [0.0] * columns
    for layer, kind in zip(layers, kinds, strict=True):
        above = [base + (value or 0.0) for base, value in zip(below, layer, strict=True)]
        parts.append(_area(below, above, left, step, y, kind))
        below = above
    parts.append(_line(left, y(capacity_cores), width, y(capacity_cores), "limit"))
    parts.append(_text(width, y(capacity_cores) - 5, f"{capacity_cores:g} cores", "end", "strong"))
    for at, label in ticks:
        anchor = "start" if at == 0.0 else "end" if at == 1.0 else "middle"
        parts.append(_text(left + (width - left) * at, height - 4, label, anchor))
    return svg(width, height, parts, "used cores of the jobs in the course of time")


def _area(
    below: Sequence[float],
    above: Sequence[float],
    left: float,
    step: float,
    y: Callable[[float], float],
    kind: str,
) -> str:
    upper = [
        f"{left + at * step:.1f} {y(value):.1f}H{left + (at + 1) * step:.1f}"
        for at, value in enumerate(above)
    ]
    lower = [
        f"{left + (at + 1) * step:.1f} {y(value):.1f}H{left + at * step:.1f}"
        for at, value in reversed(list(enumerate(below)))
    ]
    return f'<path class="{kind}" d="M{"L".join([*upper, *lower])}Z"/>'


def _steps(most: float) -> list[float]:
    """About four round numbers up to `most`."""
    raw = most / 4.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1.0, 2.0, 5.0, 10.0) if size * power >= raw)
    return [round(step * number, 10) for number in range(int(most / step) + 1)]


def _thinned(
    values: Sequence[float | None], together: Callable[[Sequence[float]], float]
) -> list[float | None]:
    """At most CELLS_MAX values, neighbours joined by `together`; None where all are None."""
    cells = min(len(values), CELLS_MAX)
    found: list[float | None] = []
    for number in range(cells):
        begin, end = number * len(values) // cells, (number + 1) * len(values) // cells
        known = [one for one in values[begin:end] if one is not None]
        found.append(together(known) if known else None)
    return found

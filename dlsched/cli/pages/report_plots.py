"""The report's plots as SVG elements. They have no script and no style of their own: classes are in
report.css."""

from __future__ import annotations

import html
import itertools
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


def used(job: JobReview, capacity_cores: float) -> str:
    """Used cores in the course of time, as a part of the node's capacity."""
    cores = _thinned(job.used_cores, statistics.fmean)
    width = _STRIP_WIDTH / max(1, len(cores))
    parts = [rect(0, 0, _STRIP_WIDTH, _STRIP_HEIGHT, "none")]
    for at, one in enumerate(cores):
        height = _STRIP_HEIGHT * min((one or 0.0) / capacity_cores, 1.0) if capacity_cores else 0.0
        parts.append(rect(at * width, _STRIP_HEIGHT - height, width, height, "used"))
    return svg(_STRIP_WIDTH, _STRIP_HEIGHT, parts, f"used cores of {job.name}")


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

"""The report's plots as SVG elements. They have no script and no style of their own: classes are in
report.css."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from dlsched.api.review_schema import Counted, JobReview
from dlsched.cli.output import one_line
from dlsched.model.spec import BAND_RATIO

Ratios = Sequence[float | None]

CELLS_MAX = 240
"""Columns of a plot over time: finer ones are not visible."""
_STRIP_WIDTH, _STRIP_HEIGHT = 300, 22
_BAR_WIDTH = 150
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


def rect(x: float, y: float, width: float, height: float, kind: str, radius: float = 0.0) -> str:
    rounded = f' rx="{radius:g}"' if radius else ""
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.0):.2f}" '
        f'height="{height:.2f}"{rounded}/>'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"/>'


def text(x: float, y: float, label: str, anchor: str = "start", kind: str = "") -> str:
    classed = f' class="{kind}"' if kind else ""
    return f'<text{classed} x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escaped(label)}</text>'


def hatch() -> str:
    """The pattern of everything that is an estimate, once a page."""
    return (
        '<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>'
        '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" fill="var(--card)"/>'
        '<rect width="2" height="6" fill="var(--plain)"/></pattern></defs></svg>'
    )


# ---------------------------------------------------------------------- services


def kept_bar(met: float | None, plain: float | None, error: float | None) -> str:
    """The part of the time in which a target was met; below it, hatched, plain Docker's estimate
    with the model's error."""
    height = 30 if plain is not None else 14
    parts = [rect(0, 0, _BAR_WIDTH, 14, "none", 3)]
    if met is not None:
        kind = "met" if met >= 0.95 else "near" if met >= 0.8 else "slow"
        parts.append(rect(0, 0, _BAR_WIDTH * met, 14, kind, 3))
    if plain is not None:
        parts.append(rect(0, 19, max(_BAR_WIDTH * plain, 1.0), 10, "plain", 2))
        if error:
            low, high = (
                _BAR_WIDTH * min(1.0, max(0.0, plain + side * abs(error))) for side in (-1, 1)
            )
            parts.append(line(low, 24, high, 24, "error"))
            parts += [line(x, 21, x, 27, "error") for x in (low, high)]
    recorded = "not judged" if met is None else f"met {met:.1%}"
    beside = "" if plain is None else f"; plain Docker, an estimate: {plain:.1%}"
    return svg(_BAR_WIDTH, height, parts, f"{recorded}{beside}")


def strip(job: JobReview, title: str) -> str:
    """Measured over target in the course of time, as colours; a silence differs from an absence."""
    ratio = thinned(job.ratio, CELLS_MAX, max)
    ran = thinned(job.used_cores, CELLS_MAX, max)
    kinds = [
        _colour(one) or (None if used is None else "silent")
        for one, used in zip(ratio, ran, strict=True)
    ]
    width = _STRIP_WIDTH / max(1, len(kinds))
    parts = [rect(0, 0, _STRIP_WIDTH, _STRIP_HEIGHT, "none", 3)]
    at = 0
    for kind, group in itertools.groupby(kinds):
        count = len(list(group))
        if kind is not None:
            parts.append(rect(at * width, 0, count * width + 0.2, _STRIP_HEIGHT, kind))
        at += count
    return svg(_STRIP_WIDTH, _STRIP_HEIGHT, parts, title)


def _colour(ratio: float | None) -> str | None:
    if ratio is None:
        return None
    if ratio <= 1.0:
        return "fast" if ratio <= _FAST else "met"
    return "near" if ratio <= 1.0 + BAND_RATIO else "slow" if ratio <= _BAD else "bad"


def time_axis(ticks: Sequence[tuple[float, str]], width: float = _STRIP_WIDTH) -> str:
    """Labels of times, each at a fraction of the range."""
    return svg(width, 14, _time_labels(ticks, 0.0, width, 10), "time of day")


def _time_labels(
    ticks: Sequence[tuple[float, str]], left: float, width: float, y: float
) -> list[str]:
    """The first one begins at the left, the last one ends at the right."""
    return [
        text(
            left + (width - left) * at,
            y,
            label,
            "start" if at < 0.02 else "end" if at > 0.98 else "middle",
        )
        for at, label in ticks
    ]


def ratio_chart(ratio: Ratios, ticks: Sequence[tuple[float, str]], title: str) -> str:
    """Measured over target as a line, on a logarithmic scale: twice and half are equally far."""
    width, height, left, top = 300.0, 104.0, 30.0, 6.0
    bottom = height - 16.0
    cells = thinned(ratio, CELLS_MAX, max)
    known = [one for one in cells if one is not None]
    low = min(0.5, *(one for one in known)) if known else 0.5
    high = max(2.0, *(one for one in known)) if known else 2.0
    low, high = math.log(max(low, 0.05)), math.log(min(high, 20.0))

    def y(value: float) -> float:
        part = (math.log(min(max(value, 0.05), 20.0)) - low) / (high - low)
        return bottom - (bottom - top) * min(1.0, max(0.0, part))

    parts = [rect(left, top, width - left, y(1.0) - top, "over")]
    for value in (0.1, 0.2, 0.5, 2.0, 5.0, 10.0):
        if low <= math.log(value) <= high:
            parts.append(line(left, y(value), width, y(value), "grid"))
            parts.append(text(left - 5, y(value) + 4, f"{value:g}", "end"))
    parts.append(line(left, y(1.0), width, y(1.0), "limit"))
    parts.append(text(left - 5, y(1.0) + 4, "1", "end", "strong"))
    step = (width - left) / max(1, len(cells))
    for run in _runs(cells):
        points = " ".join(f"{left + (at + 0.5) * step:.1f},{y(value):.1f}" for at, value in run)
        if len(run) == 1:  # a point alone has no line
            points += f" {left + (run[0][0] + 1.0) * step:.1f},{y(run[0][1]):.1f}"
        parts.append(f'<polyline class="ratio" points="{points}"/>')
    parts += _time_labels(ticks, left, width, height - 2)
    return svg(width, height, parts, title)


def _runs(cells: Ratios) -> list[list[tuple[int, float]]]:
    """Neighbours without a silence between them."""
    runs: list[list[tuple[int, float]]] = []
    before = -2
    for at, value in enumerate(cells):
        if value is None:
            continue
        if at != before + 1:
            runs.append([])
        runs[-1].append((at, value))
        before = at
    return runs


# ---------------------------------------------------------------------- trainings


def reached_chart(
    recorded: Sequence[float | None], plain: Sequence[float | None], longest_s: float
) -> str:
    """When tiers were reached: above, filled, what was recorded; below, hollow, the estimate."""
    width, left, height = _STRIP_WIDTH, 6.0, 34
    scale = (width - 2 * left) / max(longest_s, 1e-9)
    parts = []
    for y, times, kinds in ((9.0, recorded, ("fast", "met")), (25.0, plain, ("hollow", "hollow"))):
        parts.append(line(left, y, width - left, y, "grid"))
        for place, (time_s, kind) in enumerate(zip(times, kinds, strict=True)):
            if time_s is None:
                continue
            x = left + scale * min(time_s, longest_s)
            if place:
                shape = f"M{x:.1f} {y - 6:.1f}l6 6-6 6-6-6z"
                parts.append(f'<path class="{kind}" d="{shape}"/>')
            else:
                parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
    return svg(
        width,
        height,
        parts,
        "when each tier was reached; in the row below, the estimate of plain Docker",
    )


# ---------------------------------------------------------------------- the node


def stacked(
    jobs: Sequence[JobReview], capacity_cores: float, ticks: Sequence[tuple[float, str]]
) -> str:
    """Used cores of the jobs, one on the other, and the capacity."""
    width, height, left, top = 1040.0, 250.0, 34.0, 10.0
    bottom = height - 20.0
    shown, others = jobs[: len(LAYERS)], jobs[len(LAYERS) :]
    layers = [thinned(job.used_cores, CELLS_MAX, _mean) for job in shown]
    kinds = list(LAYERS[: len(shown)])
    if others:
        by_slice = zip(*(one.used_cores for one in others), strict=True)
        together = [math.fsum(one or 0.0 for one in values) for values in by_slice]
        layers.append(thinned(together, CELLS_MAX, _mean))
        kinds.append("rest")
    columns = len(layers[0]) if layers else 0
    sums = [math.fsum(layer[at] or 0.0 for layer in layers) for at in range(columns)]
    most = 1.08 * max(capacity_cores, *sums, 0.1) if sums else capacity_cores

    def y(cores: float) -> float:
        return bottom - (bottom - top) * cores / most

    parts = []
    for cores in _steps(most):
        parts.append(line(left, y(cores), width, y(cores), "grid"))
        parts.append(text(left - 6, y(cores) + 4, f"{cores:g}", "end"))
    step = (width - left) / max(1, columns)
    below = [0.0] * columns
    for layer, kind in zip(layers, kinds, strict=True):
        above = [base + (value or 0.0) for base, value in zip(below, layer, strict=True)]
        parts.append(_area(below, above, left, step, y, kind))
        below = above
    parts.append(line(left, y(capacity_cores), width, y(capacity_cores), "limit"))
    parts.append(text(width, y(capacity_cores) - 5, f"{capacity_cores:g} cores", "end", "strong"))
    parts += _time_labels(ticks, left, width, height - 4)
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


def diverging(borrowed: float, lent: float, most: float) -> str:
    """CPU time lent to the left, borrowed to the right."""
    width, height = 320.0, 16.0
    middle, scale = width / 2.0, (width / 2.0 - 2.0) / max(most, 1e-9)
    parts = [
        rect(middle - scale * lent, 2, scale * lent, 12, "lent", 2),
        rect(middle, 2, scale * borrowed, 12, "borrowed", 2),
        line(middle, 0, middle, height, "grid"),
    ]
    return svg(width, height, parts, f"lent {lent:.0f} core-seconds, borrowed {borrowed:.0f}")


def effects_bar(effects: Sequence[Counted], kinds: Sequence[str]) -> str:
    """Verdicts as parts of one bar."""
    width, height = 1040.0, 22.0
    whole = sum(one.count for one in effects) or 1
    parts, at = [], 0.0
    for one, kind in zip(effects, kinds, strict=True):
        length = width * one.count / whole
        parts.append(rect(at, 0, length - 1.5, height, kind))
        if length > 28:
            parts.append(text(at + 8, 15, f"{one.count}", kind="strong"))
        at += length
    return svg(width, height, parts, ", ".join(f"{one.count} {one.what}" for one in effects))


# ---------------------------------------------------------------------- values


def thinned(
    values: Ratios, most: int, together: Callable[[Sequence[float]], float]
) -> list[float | None]:
    """At most that many values, neighbours joined by `together`; None where all are None."""
    if len(values) <= most:
        return list(values)
    found: list[float | None] = []
    for number in range(most):
        begin, end = number * len(values) // most, (number + 1) * len(values) // most
        known = [one for one in values[begin:end] if one is not None]
        found.append(together(known) if known else None)
    return found


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

"""The report as one page: the sections of its text, and two plots over time. No script, no request,
everything escaped."""

from __future__ import annotations

import html
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files

from dlsched.api.review_schema import JobReview, Review
from dlsched.cli.output import one_line
from dlsched.cli.pages.layout import Cell, Column
from dlsched.cli.pages.report import Section, headline, notes, sections, services, summary
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


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_METHOD = (
    "How plain Docker is estimated: each job's work, requests and starts are taken from the record "
    "and simulated on the same cores without limits. The model's error is the difference between "
    "the record and the same simulation under the recorded limits."
)
_MOST = 300
"""Rows, lines or figures of one kind; `max_jobs` is at most a few hundred."""
_COLOURS = (
    ("fast", "latency at most half of its target"),
    ("met", "latency above half of its target, at most the target"),
    ("near", "latency up to 10 % above its target"),
    ("slow", "latency up to twice its target"),
    ("bad", "latency more than twice its target"),
    ("silent", "no latency known: silent, too few requests, or unclear"),
    ("none", "the job did not run"),
    ("used", "used cores, of the node's capacity"),
)


def page_of(found: Review) -> str:
    """The whole page."""
    style = files("dlsched.cli.pages").joinpath("report.css").read_text(encoding="utf-8")
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>dlsched report, {escaped(found.ends)}</title><style>{style}</style></head>"
    )
    lead = "".join(f"<p>{escaped(line)}</p>" for line in summary(found))
    foot = (
        f"{found.begins} to {found.ends}, {found.cycles} cycles, slices of {found.slice_s:g} s. "
        "Times of day are UTC."
    )
    parts = (
        f"<header><h1>{escaped(headline(found))}</h1>{lead}</header>",
        *(_section(one.title, _body(one)) for one in sections(found)),
        _over_time(found),
        _section("Notes", _list([*notes(found), _METHOD])),
        f"<footer>{escaped(foot)}</footer>",
    )
    return f"{head}<body><main>{''.join(parts)}</main></body></html>\n"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escaped(title)}</h2>{body}</section>"


def _body(section: Section) -> str:
    table = _table(section.columns, section.rows) if section.rows else ""
    return table + (_list([line.text for line in section.lines]) if section.lines else "")


def _over_time(found: Review) -> str:
    """Each job's latency over its target, and the cores that it used."""
    reported = services(found)
    jobs = (*reported, *(one for one in found.jobs if one not in reported))
    figures = [
        f"<figure><figcaption>{escaped(job.name)}</figcaption>"
        f"{strip(job) if job.kept else ''}{used(job, found.capacity_cores)}</figure>"
        for job in jobs[:_MOST]
    ]
    body = f'<div class="small">{"".join(figures)}</div>{_more(len(jobs))}{_legend(_COLOURS)}'
    return _section("Over time", body)


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines[:_MOST])
    return f"<ul>{items}</ul>{_more(len(lines))}"


def _more(count: int) -> str:
    """What is left out of so many: names of jobs are whatever users and containers call them."""
    left_out = count - _MOST
    return f"<p>{left_out} more: --output json has all</p>" if left_out > 0 else ""


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    def row(tag: str, cells: Iterable[Cell]) -> str:
        kinds = ("n" if column.right else "" for column in columns)
        parts = (
            f'<{tag} class="{kind} {cell.style}">{escaped(cell.text)}</{tag}>'
            for cell, kind in zip(cells, kinds, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>"

    heads = row("th", (Cell(column.header) for column in columns))
    body = "".join(row("td", cells) for cells in rows[:_MOST])
    table = f"<table><thead>{heads}</thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>{_more(len(rows))}'


def _legend(named: Iterable[tuple[str, str]]) -> str:
    items = []
    for kind, label in named:
        mark = svg(12, 12, [rect(0.5, 0.5, 11, 11, kind)], label)
        items.append(f"<li>{mark}{escaped(label)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'

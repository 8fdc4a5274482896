"""The report as one page: the sections of its text, and two plots over time. No script, no request,
everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files

from dlsched.api.review_schema import Review
from dlsched.cli.pages import report_plots as plots
from dlsched.cli.pages.layout import Cell, Column
from dlsched.cli.pages.report import Section, headline, notes, sections, services, summary
from dlsched.cli.pages.report_plots import escaped

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_METHOD = (
    "How plain Docker is estimated: each job's work, requests and starts are taken from the record "
    "and simulated on the same cores without limits. The model's error is what the same simulation "
    "under the recorded limits differs by from the record."
)
_MOST = 300
"""Rows, lines or figures of one kind; `max_jobs` is at most a few hundred."""
_COLOURS = (
    ("fast", "at most half of the target"),
    ("met", "on target"),
    ("near", "up to 10% slower"),
    ("slow", "slower"),
    ("bad", "more than twice"),
    ("silent", "silent, too few requests, or unclear"),
    ("none", "did not run"),
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
        f"{plots.strip(job) if job.kept else ''}{plots.used(job, found.capacity_cores)}</figure>"
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
        mark = plots.svg(12, 12, [plots.rect(0.5, 0.5, 11, 11, kind)], label)
        items.append(f"<li>{mark}{escaped(label)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'

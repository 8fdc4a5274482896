"""Elements of the report's page. Texts are escaped here; rows and bodies are HTML already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlsched.cli import report_plots as plots
from dlsched.cli.report_plots import escaped


def section(title: str, lead: str, body: str) -> str:
    estimate = '<span class="tag">estimate</span>' if title.startswith("About the est") else ""
    text = paragraph(lead, "lead") if lead else ""
    return f"<section><h2>{escaped(title)}{estimate}</h2>{text}{body}</section>"


def paragraph(text: str, kind: str) -> str:
    return f'<p class="{kind}">{escaped(text)}</p>'


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f'<ul class="plain-list">{items}</ul>'


def table(heads: Sequence[str], rows: Iterable[str]) -> str:
    """`n:` before a heading: its column is aligned to the right."""
    cells = "".join(
        f'<th class="n" scope="col">{escaped(head[2:])}</th>'
        if head.startswith("n:")
        else f'<th scope="col">{escaped(head)}</th>'
        for head in heads
    )
    body = f"<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table>{body}</table></div>'


def legend(named: Iterable[tuple[str, str]]) -> str:
    items = []
    for kind, label in named:
        mark = plots.svg(12, 12, [plots.rect(0.5, 0.5, 11, 11, kind, 2)], label)
        items.append(f"<li>{mark}{escaped(label)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'

"""Every command, from what `--help` says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from dlsched.cli import main
from docs.generate.markdown import table


def markdown() -> str:
    """A section a command: its usage, its help text, its options."""
    with click.Context(main, info_name="dlsched") as context:
        return "\n".join(_sections(main, context))


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    if context.parent is not None:
        yield from (f"## {context.command_path}", "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{context.command_path} {usage}", "```", "")
    yield from (_prose(inspect.cleandoc(command.help or "")), "")
    records = [parameter.get_help_record(context) for parameter in command.params]
    options = [(f"`{names}`", description) for names, description in filter(None, records)]
    if options:
        yield from (table(("option", "what it does"), options), "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is None:
                continue
            with click.Context(inner, info_name=name, parent=context) as below:
                yield from _sections(inner, below)


def _prose(text: str) -> str:
    """The help text; what click leaves as it is written (after a \\b) is a literal block."""
    parts = re.split(r"\n*\x08\n((?:.+\n?)+)", f"\n{text}")
    return "\n\n".join(
        _literal(one) if index % 2 else one.strip()
        for index, one in enumerate(parts)
        if one.strip()
    )


def _literal(block: str) -> str:
    lines = block.rstrip().splitlines()
    title = lines.pop(0) if lines[0].rstrip() in ("Examples:", "Example:") else ""
    inner = inspect.cleandoc("\n" + "\n".join(lines))
    return f"{title}\n\n```text\n{inner}\n```".lstrip()

"""The command `presets`: which stacks dlsched knows how to read, and one of them in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dlsched.cli.commands import options
from dlsched.cli.output import print_json, print_text
from dlsched.cli.pages.layout import Cell, Column, Page
from dlsched.model.errors import DlschedError


@click.command(short_help="List the presets that say how a stack's progress is read.")
@click.argument("name", required=False)
@options.config
@options.output
def presets(name: str | None, config: Path | None, output: str) -> None:
    """List the presets: those that come with dlsched, and your own in /etc/dlsched/presets.d.

    A preset says where a stack's latency or training metric is read from: label
    dlsched.metrics: NAME, or metrics: NAME in a job file. With NAME, all of its fields, as a preset
    file would give them, with what the program must be started with.

    \b
    Examples:
      dlsched presets
      dlsched presets vllm
      dlsched presets triton --json
    """
    known = options.presets(config)
    names = [name] if name is not None else sorted(known.by_name)
    if name is not None and name not in known.by_name:
        raise DlschedError(known.unknown(name))
    found = {one: known.plain(one) for one in names}
    if output == "json":
        print_json({"presets": found})
    elif name is not None:
        import yaml

        print_text(f"# from {known.by_name[name].file}")
        fields = yaml.safe_dump({name: found[name]}, sort_keys=False, width=1000)
        print_text(fields.rstrip("\n"))
    else:
        columns = (Column("NAME"), Column("READS", most=60), Column("IMAGE"))
        rows = [
            [Cell(one), Cell(reads(fields)), Cell(_joined(fields.get("image")))]
            for one, fields in found.items()
        ]
        Page().table(columns, rows)


def reads(fields: dict[str, Any]) -> str:
    if "port" not in fields:
        return f"its log: {fields.get('metric', 'latency')}"
    place = f"port {_joined(fields['port'])}"
    for one in (fields, *fields.get("first_of", ())):
        if "name" in one:
            return f"{place}: {_joined(one['name'])}"
        if "total" in one:
            return f"{place}: {one['total']}"
    return place


def _joined(value: object) -> str:
    if isinstance(value, list):
        return " or ".join(map(str, value))
    return "" if value is None else str(value)

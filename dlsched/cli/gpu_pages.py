"""What `ps` and `why` tell of GPUs: the table of devices, and what bounds a job on its own.

Owns that table and these words. It must not ask anybody: it is handed the daemon's answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlsched.cli.texts import WIDE_COLUMNS, text
from dlsched.model.units import render_bytes

SHORT_CHARACTERS = 12
"""Of a UUID: enough to tell a host's GPUs apart, and for `docker` and `nvidia-smi` to find one."""


def show_gpus(gpus: Sequence[Mapping[str, Any]], out: Console) -> None:
    """The table of GPUs; nothing where there is none."""
    if not gpus:
        return
    wide = out.width >= WIDE_COLUMNS
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("GPU", no_wrap=True, justify="right")
    table.add_column("UUID", no_wrap=True, min_width=SHORT_CHARACTERS)
    if wide:
        table.add_column("MODEL", no_wrap=True, max_width=26)
    table.add_column("MEMORY", no_wrap=True, min_width=18)
    table.add_column("BUSY", no_wrap=True, min_width=7)
    table.add_column("JOBS", overflow="fold")
    for gpu in gpus:
        cells = [text(str(gpu["index"])), text(short(gpu["uuid"]))]
        if wide:
            cells.append(text(gpu["model"]))
        table.add_row(*cells, _memory(gpu), _busy(gpu), text(_users(gpu)))
    out.print(table)


def short(uuid: str) -> str:
    """The beginning of a UUID."""
    return uuid[:SHORT_CHARACTERS]


def _memory(gpu: Mapping[str, Any]) -> Text:
    used = gpu["memory_used_bytes"]
    told = "?" if used is None else render_bytes(used)
    return text(f"{told} / {render_bytes(gpu['memory_bytes'])}")


def _busy(gpu: Mapping[str, Any]) -> Text:
    if gpu["trouble"] is not None:
        return text("in trouble", "bold red")
    if gpu["busy_ratio"] is not None:
        return text(_percent(gpu["busy_ratio"]))
    return text("unknown (MIG)" if gpu["part_of"] is not None else "unknown", "dim")


def _users(gpu: Mapping[str, Any]) -> str:
    """The jobs on it, each with its share, and whoever else keeps it from others."""
    words = [f"{job['name']} {_percent(job['share'])}" for job in gpu["jobs"]]
    words += [f"kept for {name}" for name in gpu["kept_for"]]
    if gpu["reserved"]:
        words.append("reserved")
    if gpu["compute_mode"] != "default":
        words.append(gpu["compute_mode"])
    if count := gpu["foreign_processes"]:
        held = f" ({render_bytes(gpu['foreign_memory_bytes'])})"
        words.append(f"{count} foreign process{'es' if count > 1 else ''}{held}")
    return ", ".join(words) or "-"


# --------------------------------------------------------------------------- a job's part


def in_short(gpu: Mapping[str, Any] | None) -> str | None:
    """What bounds the job on its GPUs, in one line; None: it has none now."""
    if gpu is None or not gpu["bounds"]:
        return None
    bounds = gpu["bounds"].items()
    held = ", ".join(f"{what} ({one['by']})" for what, one in bounds if one["enforced"])
    told = ", ".join(what for what, one in bounds if not one["enforced"])
    lines = [f"enforced: {held}" if held else "", f"advisory: {told}" if told else ""]
    return "; ".join(line for line in [gpu["lost"], *lines] if line)


def in_full(gpu: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """All of it, a label and its words a line."""
    if gpu is None:
        return
    yield "gpus", _holding(gpu)
    for what, one in gpu["bounds"].items():
        yield what, f"{'enforced by' if one['enforced'] else 'advisory:'} {one['by']}"


def _holding(gpu: Mapping[str, Any]) -> str:
    words = [", ".join(gpu["uuids"]) or f"none of {gpu['count']} yet"]
    if gpu["floor_share"] < 1 or gpu["actual_share"] is not None:
        words.append(_share(gpu))
    elif gpu["uuids"]:
        words.append("alone")
    for key, told in (("used_ratio", "used"), ("told_ratio", "told by itself")):
        if gpu[key] is not None:
            words.append(f"{_percent(gpu[key])} {told}")
    if gpu["memory_bytes"] is not None:
        words.append(f"{render_bytes(gpu['memory_bytes'])} in use")
    if gpu["lost"] is not None:
        words.append(gpu["lost"])
    return "; ".join(words)


def _share(gpu: Mapping[str, Any]) -> str:
    now = "" if gpu["actual_share"] is None else f"share {_percent(gpu['actual_share'])}, "
    return f"{now}{_percent(gpu['floor_share'])} to {_percent(gpu['ceiling_share'])}"


def shares(change: Mapping[str, Any]) -> str:
    """The share of GPUs' time that a change gave, if it did."""
    before, after = change["before_share"], change["after_share"]
    if after == before or after is None:
        return ""
    return f"GPU share {after:g}" if before is None else f"GPU share {before:g} -> {after:g}"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"

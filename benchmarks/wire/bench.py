"""The wire against the truth: what it measures, what it costs, and what it survives.

Response times at the sockets of servers of other makers, in a network of the bench's own, beside
those that clients saw, each with its own clock. A cell passes if p50 and p95 are within 5 % and
half a millisecond, or if the wire says that it does not measure. Then what reading packets costs,
and what the process that reads them can do to the daemon: killed, stopped, answering nonsense.

    python -m benchmarks run wire       writes benchmarks/results/wire.json (root, Debian)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.options import options, told_if_it_fails
from benchmarks.publish import results
from benchmarks.wire import cells, cost, place, reader_faults, servers
from dlsched.runtime.wire.tap import Tap

NAME = "wire"
PARTS = ("truth", "clients", "cost", "child")
_TITLES = {
    "truth": "Response times in ms: an open loop with its own clock, beside the wire",
    "clients": "Response times in ms: closed loops of other makers' clients, beside the wire",
    "cost": "What reading packets costs",
    "child": "What the process that reads packets can do to a thread that takes its numbers",
}
_PASSED = (cells.WITHIN, cells.NOT_MEASURED)


def main(arguments: list[str] | None = None) -> int:
    arguments = arguments or []
    chosen = options(
        __doc__,
        arguments,
        only=(PARTS, "parts"),
        cell=("", "cells whose name has this"),
        quick=(False, "windows of 5 s, and one kill in ten; writes nothing"),
    )

    def run() -> None:
        prepare(chosen)
        place.enter(arguments)
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        with tempfile.TemporaryDirectory(prefix="dlsched-wire-") as name:
            folder = Path(name)
            servers.prepare(folder)
            measure(chosen, folder)

    return told_if_it_fails(NAME, run)


def prepare(chosen: Any) -> None:
    """See to all programs and packages, while there is a network. Raises SetupError."""
    needed = {one.server for one in asked(chosen)} if "truth" in chosen.only else set()
    programs = {"ip": "iproute2"}
    if "clients" in chosen.only:
        needed |= {server for _, _, server, _ in cells.OTHERS}
        programs |= cells.PROGRAMS
    if "cost" in chosen.only:
        needed.add(servers.NGINX)
        programs |= cells.PROGRAMS
    if "child" in chosen.only:
        needed.add(servers.UVICORN)
    for server in needed:
        programs |= server.programs
    place.install(programs)
    for server in needed:
        server.packages()


def asked(chosen: Any) -> list[cells.Cell]:
    """The cells whose name has what was asked for."""
    return [one for one in cells.all_cells() if chosen.cell in one.name]


def measure(chosen: Any, folder: Path) -> None:
    """All parts that are asked for, printed and saved."""
    window_s = cells.QUICK_WINDOW_S if chosen.quick else cells.WINDOW_S
    tables: dict[str, list[dict[str, Any]]] = {}
    for part in chosen.only:
        rows = tables.setdefault(_TITLES[part], [])
        if part == "truth":
            with closing(Tap()) as tap:
                for row in cells.rows(tap, folder, window_s, asked(chosen)):
                    rows.append(shown(row))
        elif part == "clients":
            with closing(Tap()) as tap:
                for row in cells.beside_others(tap, folder, window_s):
                    rows.append(shown(row))
        elif part == "cost":
            rows += map(shown, cost.rows(folder, window_s))
        else:
            rows += map(shown, reader_faults.rows(folder, kills=10 if chosen.quick else 100))
    headlines = [line for part in chosen.only for line in said(part, tables[_TITLES[part]])]
    results.finish(
        NAME,
        "none",
        [1],
        [row for rows in tables.values() for row in rows],
        tables,
        headlines,
        whole=not chosen.quick and not chosen.cell and tuple(chosen.only) == PARTS,
    )


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """The row, printed: a run takes long."""
    print("  ".join(f"{k}={results.cell(v)}" for k, v in row.items() if v is not None), flush=True)
    return {key: "-" if value is None else value for key, value in row.items()}


def said(part: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The headlines of a part, each ending in "reached" or "not reached"."""
    if part == "cost":
        return cost.headlines(rows)
    return [reader_faults.headline(rows) if part == "child" else headline(part, rows)]


def headline(part: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Of how many cells are right."""
    verdicts = [str(row["verdict"]) for row in rows]
    count = verdicts.count
    tried = [one for one in verdicts if not one.startswith("beyond")]
    out = len(tried) - sum(map(count, _PASSED))
    beyond = len(verdicts) - len(tried)
    left = f"; {beyond} more ask for more than server or client can" if beyond else ""
    what = "clients of other makers" if part == "clients" else "the client"
    return (
        f"Truth, beside {what}: of {len(tried)} cells {count(cells.WITHIN)} are within 5 % and "
        f"0.5 ms, {count(cells.NOT_MEASURED)} are reported as not measured, {out} are wrong"
        f"{left}: {results.verdict(not out)}."
    )

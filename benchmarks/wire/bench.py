"""The wire against the truth: what it measures, and what it costs.

Response times at the sockets of servers of other makers, in a network of the bench's own, beside
those that clients saw, each with its own clock. A cell passes if p50 and p95 are within 5 % and
half a millisecond, or if the wire says that it does not measure. Then what reading packets costs.

    python -m benchmarks run wire       writes benchmarks/results/wire.json (root, Debian)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import grouped
from benchmarks.real.scene import told_if_it_fails
from benchmarks.wire import cells, cost, place, servers
from dlsched.runtime.wire.tap import Tap

NAME = "wire"
PARTS = ("truth", "clients", "cost")
_TITLES = {
    "truth": "Response times in ms, client / wire: an open loop with a clock of its own",
    "clients": "Response times in ms, client / wire: clients of other makers, 200 a second",
    "cost": "What reading packets costs",
}
_PASSED = (cells.WITHIN, cells.NOT_MEASURED)


def main(arguments: list[str] | None = None) -> int:
    arguments = arguments or []
    chosen = options(
        __doc__,
        arguments,
        only=(PARTS, "parts"),
        cell=("", "cells whose name has this"),
        quick=(False, "windows of 5 s; writes nothing"),
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
    for server in needed:
        programs |= server.programs
    place.install(programs)
    for server in needed:
        server.packages()


def asked(chosen: Any) -> list[cells.Cell]:
    """The cells whose name has what was asked for."""
    return [one for one in cells.all_cells() if chosen.cell in one.name]


def measure(chosen: Any, folder: Path) -> None:
    """All parts that are asked for, printed and saved; other parts stay as they were saved."""
    window_s = cells.QUICK_WINDOW_S if chosen.quick else cells.WINDOW_S
    rows: dict[str, list[dict[str, Any]]] = {}
    for part in chosen.only:
        for row in rows_of(part, chosen, folder, window_s):
            print("  ".join(f"{k}={results.cell(v)}" for k, v in row.items()), flush=True)
            rows.setdefault(part, []).append({"part": part, **row})
    whole = not chosen.quick and not chosen.cell
    if whole and (saved := results.load(NAME)) is not None:
        rows = {**grouped(saved["rows"], itemgetter("part")), **rows}
    parts = [part for part in PARTS if part in rows]
    results.finish(
        NAME,
        "none",
        [1],
        [row for part in parts for row in rows[part]],
        {_TITLES[part]: [shown(part, row) for row in rows[part]] for part in parts},
        [line for part in parts for line in said(part, rows[part])],
        whole=whole,
    )


def shown(part: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as a line of its table."""
    if part in ("truth", "clients"):
        return cells.short(row)
    return {key: value for key, value in results.known(row).items() if key != "part"}


def rows_of(part: str, chosen: Any, folder: Path, window_s: float) -> Iterator[dict[str, Any]]:
    """The rows of a part, one after the other: a run takes long."""
    if part == "cost":
        yield from cost.rows(folder, window_s)
    else:
        with closing(Tap()) as tap:
            if part == "truth":
                yield from cells.rows(tap, folder, window_s, asked(chosen))
            else:
                yield from cells.beside_others(tap, folder, window_s)


def said(part: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The headlines of a part, each ending in "reached" or "not reached"."""
    if part == "cost":
        return cost.headlines(rows)
    return [headline(part, rows)]


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

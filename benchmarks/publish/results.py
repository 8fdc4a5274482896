"""Result files: host facts, seeds and rows, as `benchmarks/results/NAME.json`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil

from benchmarks.places import RESULTS, ROOT
from dlsched import __version__

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)

FOLDER = RESULTS
CLUSTER_PICTURE = FOLDER / "cluster-simulated.png"


def host_facts(engine_version: str) -> dict[str, object]:
    """What a reader must know of the host to read the numbers."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": [*models, platform.machine()][0],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release(),
        "cgroup": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "engine": engine_version,
        "python": platform.python_version(),
        "dlsched": __version__,
        "commit": commit.strip() or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
    }


def engine_facts() -> dict[str, object]:
    """The host's facts, with the version of the engine that answers."""
    from tools.session import session

    with session() as one:
        return host_facts(str(one.engine.version()["Version"]))


def save(
    name: str,
    host: Mapping[str, object],
    seeds: Sequence[int],
    rows: Sequence[Mapping[str, object]],
    **more: object,
) -> Path:
    """Write one result file and return its path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    content = {"host": dict(host), "seeds": list(seeds), **more}
    head = json.dumps(content, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(dict(row))}" for row in rows)  # a line each: there are many
    path.write_text(f'{head},\n "rows": [\n{lines}\n ]\n}}\n')
    return path


def finish(
    name: str,
    host: str | Mapping[str, object],
    seeds: Sequence[int],
    rows: Sequence[Any],
    tables: Mapping[str, Sequence[Mapping[str, object]]],
    headlines: Sequence[str] = (),
    *,
    whole: bool = True,
    **more: object,
) -> None:
    """The end of a bench: a `whole` run is saved, and what is said of it is printed.

    `host`: its facts, or the version of the engine for those of this one. One table is saved with
    its title beside it, several by title.
    """
    if whole:
        facts = host_facts(host) if isinstance(host, str) else host
        plain = [asdict(row) if is_dataclass(row) else row for row in rows]
        shown: dict[str, object] = {"tables": tables}
        if len(tables) == 1:
            ((title, table),) = tables.items()
            shown = {"title": title, "table": table}
        said = {"headlines": headlines} if headlines else {}
        save(name, facts, seeds, plain, **shown, **said, **more)
    show(tables, headlines)


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """The rows by that key, in their order."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def must_load(name: str) -> dict[str, Any]:
    """A result file's content. Raises ValueError where it was never written."""
    saved = load(name)
    if saved is None:
        raise ValueError(
            f"benchmarks/results/{name}.json is missing: make bench or make torture writes it"
        )
    return saved


def load(name: str) -> dict[str, Any] | None:
    """A result file's content; None when it was never written."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def verdict(reached: bool) -> str:
    """The end of a headline: whether the figure that was asked is reached."""
    return "reached" if reached else "not reached"


def show(
    shown: Mapping[str, Sequence[Mapping[str, object]]], headlines: Iterable[str] = ()
) -> None:
    """Print tables, by title, and what is said of them."""
    for title, table in shown.items():
        print(f"\n{title}\n\n{markdown(table)}")
    for line in headlines:
        print(f"\n{line}")


def known(row: Mapping[str, object]) -> dict[str, object]:
    """The row without what is not known: None would be shown as never."""
    return {column: value for column, value in row.items() if value is not None}


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows as a Markdown table; numbers to three digits, `-` for what a row does not have."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += [
        "| " + " | ".join(cell(row.get(column, "-")) for column in columns) + " |" for row in rows
    ]
    return "\n".join(lines)


def cell(value: object) -> str:
    if value is None:
        return "never"
    return f"{value:.3g}" if isinstance(value, float) else str(value)

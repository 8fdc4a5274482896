"""What must hold when one version takes over from another, and how it is seen from outside.

Owns the comparisons and the table. It must not start or change anything, but for `spoil`, which
shows that the comparisons can fail.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.engine_remains import cgroup_mounts

LIMIT_FILES = (
    *("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.cfs_burst_us"),
    *("cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle"),
)

SAME: Mapping[str, tuple[int, int]] = {
    "CpuQuota": (0, -1),
    "CpuPeriod": (0, 100_000),
    "CpuShares": (0, 1024),
}
"""What the engine calls the default: never set, and set to it. It takes no way back to never set
(it ignores a 0), and the kernel knows no difference."""


@dataclass(frozen=True, slots=True)
class Original:
    """What a container had before any daemon ran."""

    container: str
    pid: int
    host: Mapping[str, Any]
    files: Mapping[str, str]


def limit_files(pid: int) -> dict[str, str]:
    """What the kernel says of the CPU limits of that process's group, byte for byte."""
    paths = [line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    found = {}
    for mount in cgroup_mounts():
        for path in paths:
            for name in LIMIT_FILES:
                with suppress(OSError):
                    found[name] = Path(f"{mount}{path}/{name}").read_text()
    return found


def not_as_before(
    before: Original, host: Mapping[str, Any], files: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Everything that a container has otherwise than before, and what the engine only words so."""
    wrong = [
        f"{name} is {files.get(name, 'gone').strip()}, was {text.strip()}"
        for name, text in before.files.items()
        if files.get(name) != text
    ]
    worded = []
    for key in sorted({*before.host, *host}):
        was, now = before.host.get(key), host.get(key)
        if was == now:
            continue
        told = f"{key} is {now}, was {was}"
        (worded if SAME.get(key) == (was, now) else wrong).append(told)
    return wrong, worded


def kept_memory(state_dir: Path, policy: str) -> Any:
    """What a policy has left in the journal; None: nothing."""
    with closing(sqlite3.connect(f"file:{state_dir}/journal.db?mode=ro", uri=True)) as journal:
        row = journal.execute("SELECT memory FROM memories WHERE policy = ?", (policy,)).fetchone()
    return None if row is None else json.loads(row[0])


def known(memory: Any, reported: Mapping[int, float]) -> set[int]:
    """Of which steps a memory holds what the job reported there, wherever that stands in it."""
    return {
        step
        for numbers in _lists(memory)
        for step in numbers
        if step in reported and any(abs(one - reported[int(step)]) < 1e-5 for one in numbers)
    }


def _lists(plain: Any) -> list[list[float]]:
    """Its lists of numbers; where each lies is left out: two versions may build it otherwise."""
    if isinstance(plain, Mapping):
        return [found for one in plain.values() for found in _lists(one)]
    if not isinstance(plain, list):
        return []
    numbers = [one for one in plain if isinstance(one, int | float)]
    return [numbers, *(found for one in plain for found in _lists(one))]


@dataclass(slots=True)
class Checks:
    """The table: what was looked at, what was found."""

    rows: list[dict[str, str]] = field(default_factory=list)

    def that(self, what: str, wrong: object, found: str = "") -> None:
        """A check that holds when there is nothing `wrong`; `found` is told beside."""
        told = "; ".join(map(str, wrong)) if isinstance(wrong, list) else str(wrong or "")
        self.rows.append(
            {"check": what, "": "FAILED" if wrong else "ok", "found": told or found or "-"}
        )

    @property
    def failed(self) -> int:
        """How many."""
        return sum(row[""] == "FAILED" for row in self.rows)


def spoil(state_dir: Path, what: str) -> None:
    """Break one thing that the next daemon needs: `memory`, `journal`, or a folder of records."""
    if what == "memory":
        with closing(sqlite3.connect(state_dir / "journal.db")) as journal:
            journal.execute("DELETE FROM frames")  # they tell what came after the last whole one
            journal.execute(
                "INSERT OR REPLACE INTO memories VALUES ('adaptive', '{\"services\": 3}')"
            )
            journal.commit()
    elif what == "journal":
        for file in state_dir.glob("journal.db*"):
            file.write_text("broken")
    else:
        shutil.rmtree(state_dir / what)

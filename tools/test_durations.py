"""Makes the table of tests' durations from the last run, on request; it is kept in the repository.

    python -m tools.test_durations [ACCOUNTS [TABLE]]

It shows what to make cheaper, and the next run's workers take the longest cases first. Cases that
are missing in it count as short.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tools.environment import ROOT
from tools.steps import say
from tools.test_lanes import ACCOUNTS

TABLE = ROOT / "tests" / "durations.json"
SLOWEST = 200
Row = Mapping[str, Any]


def rounded(rows: Sequence[Row]) -> dict[str, float]:
    """Sums over these cases."""
    return {
        "cases": len(rows),
        "wall_s": round(sum(row["wall_s"] for row in rows), 1),
        "cpu_s": round(sum(row["own_s"] + row["children_s"] for row in rows), 1),
    }


def table(cases: Mapping[str, Row]) -> dict[str, Any]:
    """By lane and by folder, then the slowest cases, longest first."""
    lanes: dict[str, list[Row]] = defaultdict(list)
    folders: dict[str, list[Row]] = defaultdict(list)
    for name, row in cases.items():
        lanes[row["lane"]].append(row)
        folders[name.split("::")[0].rpartition("/")[0]].append(row)
    slowest = sorted(cases.items(), key=lambda case: -case[1]["wall_s"])[:SLOWEST]
    return {
        "lanes": {name: rounded(rows) for name, rows in sorted(lanes.items())},
        "folders": {name: rounded(rows) for name, rows in sorted(folders.items())},
        "slowest": {
            name: [round(row["wall_s"], 1), round(row["own_s"] + row["children_s"], 1)]
            for name, row in slowest
        },
    }


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Write the table from the accounts of the last run."""
    parser = argparse.ArgumentParser(prog="python -m tools.test_durations", description=__doc__)
    parser.add_argument("accounts", nargs="?", type=Path, default=ACCOUNTS)
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    options = parser.parse_args(arguments)
    cases: dict[str, Row] = {}
    for file in sorted(options.accounts.glob("*.json")):
        cases |= json.loads(file.read_text(encoding="utf-8"))["cases"]
    if not cases:
        say(f"error: {options.accounts}: no accounts there; run `make test` first")
        return 1
    # A case a line.
    lines = [f'"{key}": {{\n{block(rows)}\n}}' for key, rows in table(cases).items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    options.table.write_text(text, encoding="utf-8")
    say(f"{options.table}: {len(cases)} cases")
    return 0


def block(rows: Mapping[str, Any]) -> str:
    """One row a line."""
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())


if __name__ == "__main__":
    sys.exit(main())

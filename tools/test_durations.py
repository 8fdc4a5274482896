"""Makes the table of tests' durations from the last run, on request; it is kept in the repository.

    python -m tools.test_durations [ACCOUNTS [TABLE]]

It shows what to make cheaper, and the next run's workers take the longest cases first. Cases that
are missing in it count as short.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tools.environment import ROOT
from tools.steps import say
from tools.test_lanes import ACCOUNTS

TABLE = ROOT / "tests" / "durations.json"
SLOWEST = 200


def table(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float]]:
    """Wall and CPU seconds of the slowest cases, longest first."""
    slowest = sorted(cases.items(), key=lambda case: -case[1]["wall_s"])[:SLOWEST]
    return {
        name: [round(row["wall_s"], 1), round(row["own_s"] + row["children_s"], 1)]
        for name, row in slowest
    }


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Write the table from the accounts of the last run."""
    parser = argparse.ArgumentParser(prog="python -m tools.test_durations", description=__doc__)
    parser.add_argument("accounts", nargs="?", type=Path, default=ACCOUNTS)
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    options = parser.parse_args(arguments)
    cases: dict[str, dict[str, Any]] = {}
    for file in sorted(options.accounts.glob("*.json")):
        cases |= json.loads(file.read_text(encoding="utf-8"))["cases"]
    if not cases:
        say(f"error: {options.accounts}: no accounts there; run `make test` first")
        return 1
    lines = (f"{json.dumps(name)}: {json.dumps(took)}" for name, took in table(cases).items())
    options.table.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    say(f"{options.table}: {len(cases)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())

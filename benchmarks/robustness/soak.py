"""`python -m benchmarks run soak`: half an hour of churn on a real engine, and a month simulated.

Prints what the daemon held after its warm-up and at the end, writes `results/soak.json`; exit code
1 when anything grew.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from benchmarks.judge.flatness import Flatness, Sample, judged
from benchmarks.publish import results
from benchmarks.robustness import soak_real, soak_simulated

SECONDS = 1800.0
DAYS = 30

Soaked = tuple[list[Sample], dict[str, object]]


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="simulated,real", help="simulated, real")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the real soak")
    parser.add_argument("--days", type=int, default=DAYS, help="of the simulated soak")
    chosen = parser.parse_args(arguments)
    # An engine and its containers would be left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=False, markup=False, highlight=False, soft_wrap=True)
    parts: dict[str, Callable[[], Soaked]] = {
        "simulated": lambda: soak_simulated.run(chosen.days, console.print),
        "real": lambda: soak_real.run(chosen.seconds, console.print),
    }
    soaked: list[tuple[str, str, dict[str, object], list[Flatness]]] = []
    for name in chosen.only.split(","):
        if name not in parts:
            parser.error(f"no part {name!r}; there are {', '.join(parts)}")
        samples, facts = parts[name]()
        measures = judged(samples)
        title = _title(name, facts)
        console.print(f"{title}\n{results.markdown([one.row() for one in measures])}")
        soaked.append((name, title, facts, measures))
    # A short one says nothing that could be quoted.
    if (chosen.seconds, chosen.days) == (SECONDS, DAYS):
        _save(soaked)
    return 0 if all(one.flat for *_, measures in soaked for one in measures) else 1


def _title(name: str, facts: dict[str, object]) -> str:
    return f"Soak, {name}: " + ", ".join(f"{value} {what}" for what, value in facts.items())


def _save(soaked: Sequence[tuple[str, str, dict[str, object], list[Flatness]]]) -> None:
    """In place of what was there of these parts; another one stays."""
    before = results.load("soak") or {"tables": {}, "rows": []}
    names = {name for name, *_ in soaked}
    tables = {
        title: rows
        for title, rows in before["tables"].items()
        if not any(title.startswith(f"Soak, {name}:") for name in names)
    }
    tables |= {title: [one.row() for one in measures] for _, title, _, measures in soaked}
    rows = [row for row in before["rows"] if row["part"] not in names]
    rows += [{"part": name, **facts} for name, _, facts, _ in soaked]
    engine = "of its own" if "real" in names else "none"
    results.save("soak", results.host_facts(engine), [0], rows, tables=tables)

"""`make bench`: policies compared on real services and trainings, and simulated; what they cost.

Every part prints its tables and writes its result as JSON to benchmarks/results; at the end all
tables are written as Markdown to `TABLES.md` there. Seeds are 1, 2, 3, ...; none is chosen.
`--only training,sim-vs-real` runs some of the parts, in that order.
"""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.options import end_on_terminate, options
from benchmarks.publish import results

TABLES = results.FOLDER / "TABLES.md"

PARTS = {
    "loop-real": "loop",
    "training": "training-real",
    "adaptive-real": "adaptive-real",
    "adaptive-schedules": "adaptive-schedules",
    "adaptive-inference": "adaptive-inference",
    "adaptive-training": "adaptive-training",
    "open-loop": "open-loop",
    "open-changes": "open-changes",
    "open-loop-real": "open-loop-real",
    "no-harm": "no-harm",
    "verdicts": "verdicts",
    "mixed": "mixed",
    "sim-vs-real": "sim-vs-real",
    "gpu-placement": "gpu-placement",
    "gpu-move": "gpu-move",
}
"""Benches, each a part, and what their result files are called."""
ALSO_SHOWN = ("gpu-pacing",)


def run(part: str) -> None:
    """One part in full; its failure ends all."""
    from benchmarks.__main__ import BENCHES

    if import_module(BENCHES[part].module).main([]):
        sys.exit(1)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, only=(tuple(PARTS), "parts, such as loop-real,mixed"))
    end_on_terminate()
    for part in chosen.only:
        run(part)
    TABLES.write_text("\n\n".join(results.tables([*PARTS.values(), *ALSO_SHOWN])) + "\n")
    print(TABLES.read_text())
    return 0

"""`make bench`: policies compared on real services and trainings, and simulated; what they cost.

Every part prints its tables and writes its result as JSON to benchmarks/results, from which the
pages of docs/results are made. Seeds are 1, 2, 3, ...; none is chosen.
`--only training,sim-vs-real` runs some of the parts, in that order.
"""

from __future__ import annotations

from benchmarks.options import end_on_terminate, options

PARTS = (
    "loop-real", "training", "adaptive-real", "adaptive-inference",
    "adaptive-training", "open-loop", "open-changes", "open-loop-real", "no-harm", "verdicts",
    "mixed", "sim-vs-real", "gpu-placement", "gpu-move",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    from benchmarks.__main__ import BENCHES

    chosen = options(__doc__, arguments, only=(PARTS, "parts, such as loop-real,mixed"))
    end_on_terminate()
    # The failure of one ends all.
    return int(any(BENCHES[part].run([]) for part in chosen.only))

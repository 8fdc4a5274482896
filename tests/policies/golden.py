"""Golden traces of the policy `adaptive`: what it decides on three small nodes, committed.

    PYTHONPATH=. python tests/policies/golden.py      writes tests/policies/golden/adaptive-*.json

Any change of behaviour changes them: look at the difference before it is committed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.policies.registry import load
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.trace import Recipe, generate, parse_trace

FOLDER = Path(__file__).parent / "golden"
EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"
EVERY = 10
"""One cycle in so many is kept, and every one of the first."""
SEED = 1
DIGITS = 4


@dataclass(frozen=True)
class Golden:
    """One committed trace."""

    name: str
    policy: str
    trace: Trace


def _example(name: str) -> Trace:
    return parse_trace((EXAMPLES / f"{name}.yaml").read_text(), name)


GOLDEN = (
    Golden(
        "adaptive-services",
        "adaptive?mode=band",
        generate(
            Recipe(
                jobs=6,
                kind="inference",
                schedule="burst",
                duration_s=40.0,
                cores=4.0,
                demand=1.2,
                impossible_ratio=0.2,
                seed=3,
            )
        ),
    ),
    Golden(
        "adaptive-trainings",
        "adaptive",
        generate(Recipe(jobs=4, kind="training", duration_s=200.0, cores=4.0, demand=1.0, seed=2)),
    ),
    Golden("adaptive-mixed", "adaptive", _example("a-bad-day")),
)


def decisions(golden: Golden) -> list[dict[str, Any]]:
    """What was decided, cycle by cycle, in few digits; not the words."""
    kept: list[dict[str, Any]] = []

    def publish(report: CycleReport) -> None:
        cycle = report.snapshot.cycle
        if report.decision is not None and (cycle < EVERY or cycle % EVERY == 0):
            kept.append(_told(report))

    simulate(golden.trace, NamedPolicy(golden.policy, load(golden.policy)), SEED, publish=publish)
    return kept


def _told(report: CycleReport) -> dict[str, Any]:
    decision = report.decision
    assert decision is not None
    jobs = {
        name: {
            "limit": _rounded(limits.cpu_cores),
            "weight": _rounded(decision.weights.get(name)),
            "outlooks": [
                {key: _rounded(value) for key, value in asdict(one).items() if key != "why"}
                for one in decision.outlooks.get(name, ())
            ],
        }
        for name, limits in sorted(decision.limits.items())
    }
    return {"cycle": report.snapshot.cycle, "jobs": jobs}


def _rounded(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, tuple):
        return [_rounded(one) for one in value]
    return value


def path_of(golden: Golden) -> Path:
    """Where it is committed."""
    return FOLDER / f"{golden.name}.json"


def main() -> None:
    """Write all of them anew."""
    FOLDER.mkdir(exist_ok=True)
    for golden in GOLDEN:
        path_of(golden).write_text(json.dumps(decisions(golden), indent=1) + "\n")


if __name__ == "__main__":
    main()

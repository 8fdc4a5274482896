"""Policies decide what they were seen to decide on small nodes: committed traces.

    PYTHONPATH=. python tests/policies/test_golden.py      writes tests/policies/golden/*.json

Any change of behaviour changes them: look at the difference before it is committed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

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
_WORDS = ("why", "why_has_numbers")


SERVICES = generate(
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
)
TRAININGS = generate(
    Recipe(jobs=4, kind="training", duration_s=200.0, cores=4.0, demand=1.0, seed=2)
)
MIXED = parse_trace((EXAMPLES / "a-bad-day.yaml").read_text(), "a-bad-day")
GOLDEN = {
    "adaptive-services": ("adaptive?mode=band", SERVICES),
    "adaptive-trainings": ("adaptive", TRAININGS),
    "adaptive-mixed": ("adaptive", MIXED),
    "dqoes-mixed": ("dqoes", MIXED),
}


def decisions(policy: str, trace: Trace) -> list[dict[str, Any]]:
    """What was decided, cycle by cycle, in few digits; not the words."""
    kept: list[dict[str, Any]] = []

    def publish(report: CycleReport) -> None:
        cycle = report.snapshot.cycle
        if report.decision is not None and (cycle < EVERY or cycle % EVERY == 0):
            kept.append(_told(report))

    simulate(trace, NamedPolicy(policy, load(policy)), SEED, publish=publish)
    return kept


def _told(report: CycleReport) -> dict[str, Any]:
    decision = report.decision
    jobs = {
        name: {
            "limit": _rounded(limits.cpu_cores),
            "weight": _rounded(decision.weights.get(name)),
            "outlooks": [
                {key: _rounded(value) for key, value in asdict(one).items() if key not in _WORDS}
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


@pytest.mark.parametrize("name", GOLDEN)
def test_a_policy_decides_what_it_decided(name: str) -> None:
    wanted = json.loads((FOLDER / f"{name}.json").read_text())
    found = json.loads(json.dumps(decisions(*GOLDEN[name])))
    assert len(found) == len(wanted) > 10
    for one, other in zip(found, wanted, strict=True):
        assert one == _near(other)


def _near(value: Any) -> Any:
    """A library's last digits may differ from one machine to the next, and so a rounding."""
    if isinstance(value, dict):
        return {key: _near(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_near(item) for item in value]
    return pytest.approx(value, rel=2e-3) if isinstance(value, float) else value


if __name__ == "__main__":
    for name, (policy, trace) in GOLDEN.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(decisions(policy, trace), indent=1) + "\n")

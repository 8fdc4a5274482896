"""How the simulated results of `adaptive` are shown."""

from __future__ import annotations

from dataclasses import asdict, replace

from benchmarks.publish.blocks import adaptive_services, adaptive_trainings
from benchmarks.simulated.adaptive_inference import PUBLISHED, Measured

ROW = Measured("demand 0.7", 10, "none", 1, 2.0, 10.0, None, 0, 8.0, 10.0, 3, 0, 0.0)


def test_a_line_is_a_scenario_and_a_cell_has_every_n() -> None:
    best = replace(ROW, policy="adaptive?mode=slo", met_jobs=10.0, met_worse_jobs=1)
    rows = [
        ROW,
        replace(ROW, seed=2, satisfied_jobs=4.0),
        replace(ROW, n=20, satisfied_jobs=5.0),
        replace(ROW, policy=PUBLISHED[0], satisfied_jobs=5.0),
        replace(ROW, policy=PUBLISHED[1], satisfied_jobs=6.0),
        best,
        replace(best, scenario="demand 0.95"),
    ]
    told = adaptive_services({"rows": [asdict(row) for row in rows], "seeds": [1, 2]})
    lines = told.splitlines()
    assert "| `none` | `dqoes-published` | `adaptive slo` |" in lines[2]
    assert lines[4] == "| demand 0.7 | 0.30/0.50 | 0.60 | 0.20 |"
    assert lines[5] == "| demand 0.95 | - | - | 0.20 |"
    assert "| demand 0.7 | 0.80/0.80 | 0.80 | 1.00 (1) |" in lines


def test_trainings_are_told_beside_plain_docker_with_what_was_not_reached() -> None:
    table = [
        {"scenario": "s", "n": n, "policy": policy, "tier 1 of plain": 1.0 - part}
        for n, part in ((10, 0.25), (20, 0.5))
        for policy in ("none", "benchmarks.peers.las:LasPolicy")
    ]
    lines = ["n = 20: mean 0.9, at most 0.8: NOT reached", "n = 10: reached"]
    told = adaptive_trainings({"table": table, "headlines": lines, "seeds": [1, 2]})
    assert "**s**, of plain Docker's (lower is better), n = 10/20, mean of 2 seeds:" in told
    assert "| `las:LasPolicy` | 0.75/0.50 |" in told
    assert "`none`" not in told
    assert told.endswith("- n = 20: mean 0.9, at most 0.8: NOT reached")

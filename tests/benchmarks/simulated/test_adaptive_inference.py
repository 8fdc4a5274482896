"""The inference comparison: its traces, its rows, and what its tables make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.publish import results
from benchmarks.simulated import adaptive_inference
from benchmarks.simulated.adaptive_inference import (
    HONEST,
    Measured,
    Scenario,
    compare,
)
from dlsched.simulation.scoring import PLAIN
from dlsched.simulation.trace import Recipe

ROW = Measured("demand 0.7", 10, PLAIN, 1, 2.0, 10.0, 0, 8.0, 10.0, 0, 0.0)


def test_every_policy_is_measured_beside_plain_docker_and_the_clairvoyant() -> None:
    recipe = Recipe(kind="inference", schedule="burst", duration_s=30.0, cores=4.0)
    scenario = Scenario("small", "small", replace(recipe, lying_ratio=0.4))
    found = compare(scenario, 5, 1, (PLAIN, "fair", "dqoes"))
    assert [(row.scenario, row.policy) for row in found] == [
        (words, policy)
        for policy in (PLAIN, "fair", "dqoes")
        for words in ("small", f"small{HONEST}")
    ]
    for row in found:
        assert 0.0 <= row.satisfied_jobs <= row.satisfied_best_jobs + 1e-9 <= 5.0 + 1e-9
        assert 0.0 <= row.met_jobs <= row.met_best_jobs + 1e-9
    plain, honest = found[:2]
    assert (plain.satisfied_worse_jobs, plain.updates_per_min) == (0, 0.0)
    assert honest.satisfied_best_jobs <= 3.0 < plain.satisfied_best_jobs
    assert found == compare(scenario, 5, 1, (PLAIN, "fair", "dqoes"))


def test_a_part_is_printed_and_not_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adaptive_inference, "compare_all", lambda *_: [ROW])
    monkeypatch.setattr(results, "save", lambda *_, **__: pytest.fail("it was saved"))
    assert adaptive_inference.main(["--seeds", "1"]) == 0
    assert "| demand 0.7 | 10 | 0.2 |" in capsys.readouterr().out

"""The ablation: its variants, its traces, and what its tables make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.publish import results
from benchmarks.simulated import ablation, adaptive_inference
from benchmarks.simulated.ablation import (
    COUNT,
    FAMILIES,
    SERVICE_SCENARIOS,
    TRAINING_PARTS,
    Trained,
    service_policies,
    service_table,
    training_table,
    training_trace,
)
from benchmarks.simulated.inference_tables import Measured
from dlsched.policies.registry import load
from dlsched.simulation.node.curves import Curve
from dlsched.simulation.node.workloads import TrainingLoad

ROW = Measured("demand 1.4", COUNT, "adaptive?mode=band", 1, 9.0, 10.0, 3, 0, 5.0, 8.0, 3, 0, 9.0)


@pytest.mark.parametrize(
    ("whole", "variants"),
    [
        *(
            (f"adaptive?mode={mode}", [one for one in service_policies() if f"={mode}&" in one])
            for mode in ("band", "slo")
        ),
        ("adaptive", [f"adaptive{switch}" for switch in TRAINING_PARTS.values() if switch]),
    ],
)
def test_each_variant_differs_from_the_whole_in_one_parameter(
    whole: str, variants: list[str]
) -> None:
    one = load(whole).policy.parameters  # type: ignore[attr-defined]
    assert len(variants) == 4
    for variant in variants:
        other = load(variant).policy.parameters  # type: ignore[attr-defined]
        fields = one.__dataclass_fields__
        assert sum(getattr(one, name) != getattr(other, name) for name in fields) == 1, variant


def test_every_scenario_is_one_of_the_comparison() -> None:
    assert set(SERVICE_SCENARIOS) < {one.name for one in adaptive_inference.SCENARIOS}


@pytest.mark.parametrize("families", FAMILIES)
def test_trainings_learn_on_the_curves_that_the_table_says(families: str) -> None:
    trace = training_trace(families, 1)
    assert trace == training_trace(families, 1) != training_trace(families, 2)
    for job in trace.jobs:
        assert isinstance(job.load, TrainingLoad) and isinstance(job.load.curve, Curve)
        assert job.load.curve.family in FAMILIES[families]


def test_services_are_told_by_the_reading_of_their_mode() -> None:
    rows = [
        ROW,
        replace(ROW, seed=2, satisfied_jobs=7.0),
        replace(ROW, policy="adaptive?mode=band&triages=false", satisfied_jobs=0.0),
        replace(ROW, policy="adaptive?mode=slo"),
        replace(ROW, policy="none"),
    ]
    band, slo = service_table(rows)
    assert (band["mode"], band["scenario"], band["n"]) == ("band", "demand 1.4", COUNT)
    assert band["whole"] == pytest.approx(0.8) and band["no triage"] == 0.0
    assert slo["whole"] == pytest.approx(5.0 / 8.0)


def test_trainings_are_told_as_parts_of_plain_docker() -> None:
    whole = Trained("fitted", COUNT, "adaptive", 1, "jct_mean_s", 0.9)
    rows = [
        whole,
        replace(whole, seed=2, of_plain=0.8),
        replace(whole, policy="adaptive?guard_ratio=0.0", of_plain=1.1),
    ]
    (line,) = training_table(rows)
    assert line["time to"] == "completion" and line["no guard"] == 1.1
    assert line["whole"] == pytest.approx(0.85)


def test_burst_is_told_from_real_requests_without_and_with_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    burst = "burst, of the quota"
    table = [{burst: "none", "p95, ms": 9.0}, {burst: 0.3, "p95, ms": 7.0}, {burst: 1.0}]
    monkeypatch.setattr(results, "load", {"tail": {"table": table}}.get)
    assert ablation.burst_table() == table[:2]
    monkeypatch.setattr(results, "load", {}.get)
    assert ablation.burst_table() == []

"""What the tables make of what was measured of services."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.judge.satisfaction import MET, SATISFIED
from benchmarks.simulated.adaptive_inference import (
    PUBLISHED,
    Measured,
    best_published,
    tables_of,
)

ROW = Measured("demand 0.7", 10, "none", 1, 2.0, 10.0, None, 0, 8.0, 10.0, 3, 0, 0.0)


def test_tables_take_means_and_medians_over_seeds_and_a_row_is_a_scenario_and_n() -> None:
    rows = [
        ROW,
        replace(ROW, seed=2, satisfied_jobs=4.0, satisfied_best_jobs=8.0, met_steps=None),
        replace(ROW, policy="adaptive?mode=band", satisfied_jobs=9.0, met_steps=2),
        replace(ROW, policy="adaptive?mode=band", seed=2, satisfied_jobs=10.0, met_steps=3),
        replace(ROW, n=20),
    ]
    tables = tables_of(rows)
    (ratios,) = [
        table for title, table in tables.items() if title.startswith("Services within 10 %, of")
    ]
    assert [(line["scenario"], line["n"]) for line in ratios] == [
        ("demand 0.7", 10),
        ("demand 0.7", 20),
    ]
    assert ratios[0]["none"] == pytest.approx((0.2 + 0.5) / 2)
    assert ratios[0]["adaptive band"] == pytest.approx(0.95)
    assert ratios[0]["clairvoyant, jobs"] == pytest.approx(9.0)
    (steps,) = [
        table for title, table in tables.items() if title.startswith("Services not slower:")
    ]
    assert steps[0]["none"] is None, "one of two seeds is not most of them"
    assert steps[0]["adaptive band"] == 2.5


def test_dqoes_is_its_best_reading_in_each_row() -> None:
    own, pool = (
        [replace(ROW, policy=PUBLISHED[0], satisfied_jobs=5.0, met_jobs=9.0, updates_per_min=7.0)],
        [replace(ROW, policy=PUBLISHED[2], satisfied_jobs=6.0, met_jobs=1.0)],
    )
    by_policy = {PUBLISHED[0]: own, PUBLISHED[2]: pool}
    assert best_published(by_policy, SATISFIED) == PUBLISHED[2]
    assert best_published(by_policy, MET) == PUBLISHED[0]
    assert best_published({"none": [ROW]}, MET) is None
    tables = tables_of([*own, *pool])
    told = [line["dqoes-published"] for table in tables.values() for line in table]
    assert told[:2] == [0.6, 6.0]

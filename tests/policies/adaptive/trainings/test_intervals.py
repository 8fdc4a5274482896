"""The interval of a forecast, held against when drawn curves reached their tiers."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.simulated.verdicts import judged


@pytest.mark.long
def test_eighty_percent_intervals_hold_about_as_often() -> None:
    held: Counter[str] = Counter()
    for family in ("power", "drop", "plateau"):
        for seed in range(1, 9):
            for (*_, counted), times in judged(family, "told", seed).items():
                held[counted] += times
    assert held["intervals"] > 400
    assert 0.75 < held["inside"] / held["intervals"] < 0.92

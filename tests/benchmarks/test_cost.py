"""The cost of a cycle: the daemon's own loop runs over the bench's files and its engine."""

from __future__ import annotations

import pytest

from benchmarks import cost


@pytest.mark.timed
def test_a_cycle_over_files_and_an_instant_engine_is_measured_phase_by_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost, "WARM_CYCLES", 2)
    monkeypatch.setattr(cost, "CYCLES", 3)
    row = cost.measure(3, "all report")
    assert min(row["cycle_ms"], row["worst_ms"]) > 0
    assert {f"{name}_ms" for name in cost.PHASES} <= row.keys()

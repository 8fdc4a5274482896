"""The GPU bench's figures: what is counted, and that nothing is called a GPU that is none."""

from __future__ import annotations

import sys

import pytest

from benchmarks.gpu import pacing
from benchmarks.gpu.pacing import nvml_cost, summary
from tests.nvml.library import Stub


def test_the_worst_of_all_cases_with_turns_is_what_is_told() -> None:
    cases = [
        ((0.25,), True, [0.27], None),
        ((0.5, 0.5), True, [0.49, 0.46], 0.97),
        ((0.5, 0.5), False, [0.25, 0.25], None),
    ]
    rows = [pacing._row("D", "10 ms", *case) for case in cases]
    assert [row["worst error, points"] for row in rows] == [2.0, 4.0, 25.0]
    assert [row["together, of exclusive"] for row in rows] == ["-", 0.95, 0.5]
    assert rows[1]["NVML utilisation, %"] == 97.0
    (line,) = summary(rows)
    assert line.startswith("D: worst error 4.0 points of 2 cases (figure: 5); two jobs together ")
    assert line.endswith("at least 0.950 of exclusive throughput (figure: 0.95).")


@pytest.mark.timed
def test_the_simulated_device_is_shared_better_in_turns_than_without() -> None:
    in_turns = pacing._simulate("irregular", (0.5, 0.5), 20.0, turns=True)
    without = pacing._simulate("irregular", (0.5, 0.5), 20.0, turns=False)
    assert sum(in_turns) >= 0.95
    assert sum(without) < 0.9
    assert "torch" not in sys.modules


def test_without_a_driver_it_is_said_that_nothing_was_measured(nvml: Stub) -> None:
    assert nvml_cost() == {"driver": "none: the cost of reading NVML was not measured"}

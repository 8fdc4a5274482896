"""What the bench of federations says of its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulated.federation import (
    FEDERATED,
    FLAT,
    NONE,
    PROMPT,
    Part,
    headlines,
    line,
    rows,
)
from dlsched.simulation.cluster.federation import WorldOptions

TINY = WorldOptions(shards=2, nodes=4, jobs=40, stretch=1.5)


@pytest.mark.timed
def test_every_contender_has_a_row_beside_the_first() -> None:
    found = list(rows(Part(TINY, 5, (NONE, FLAT, PROMPT, FEDERATED))))
    assert [row["contender"] for row in found] == [NONE, FLAT, PROMPT, FEDERATED]
    assert [row["shards"] for row in found] == [2, 1, 2, 2]
    assert (found[0]["mean_of_none"], found[0]["slower"], found[1]["mean_of_flat"]) == (1.0, 0, 1.0)
    assert found[2]["held"] == 0
    assert all("of none" in line(row) for row in found)


def test_headlines_say_what_is_reached_and_what_is_not() -> None:
    row = {
        "contender": FEDERATED, "nodes": 10_000, "shards": 20, "jobs": 100_000, "cpu_s": 601.0,
        "mean_of_flat": None, "round_median_ms": 1.0, "round_max_ms": 49.0,
        "busiest_round_ms": 51.0, "summary_bytes": 4097,
    }  # fmt: skip
    beside = {**row, "nodes": 2000, "mean_of_flat": 1.04}
    found = headlines([row, beside, {**beside, "mean_of_flat": 1.06}])
    ends = ["not reached", "not reached", "not reached", "reached", "not reached"]
    assert [text.rpartition(": ")[2] for text in found] == ends
    assert "1.060" in found[1]
    assert headlines([{**row, "cpu_s": 599.0}])[1].endswith(": reached")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.timed
def test_a_world_without_neighbours_has_nothing_to_hand_over(seed: int) -> None:
    alone = replace(TINY, shards=1)
    first, second = rows(Part(alone, seed, (NONE, FEDERATED)))
    assert second["moved"] == 0
    assert first["shards"] == 1

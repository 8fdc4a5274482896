"""Blocks of Markdown are what the result files give."""

from __future__ import annotations

import pytest

from benchmarks.judge.trainings import rows
from benchmarks.publish import blocks, results
from benchmarks.real.training import headlines, table_rows
from tests.benchmarks.real.test_training import RUNS


def test_trainings_are_told_by_mean_best_and_worst_beside_plain_and_the_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = rows("two", 2.0, RUNS)
    saved = {
        "table": [{"schedule": "two", **row} for row in table_rows(found, RUNS)],
        "headlines": headlines("two", found, RUNS),
        "host": {"cpu": "x", "cores": 2, "kernel": "6", "cgroup": "v1", "engine": "20"},
        "seeds": [1, 2],
    }
    monkeypatch.setattr(results, "load", {"training-real": saved}.get)
    told = blocks.BLOCKS["real-trainings"]()
    assert "tier 1 after 10 s in the mean" in told
    (own,) = [line for line in told.splitlines() if line.startswith("| `tradl`")]
    cells = [cell.strip() for cell in own.strip("|").split("|")]
    assert cells[:3] == ["`tradl`", "2", "0.85 (0.50, 1.20; 1)"]
    assert cells[5:7] == ["1.15", "1.15"], "makespan and CPU time"
    assert cells[7].split(", ")[1] == "-", "nobody reached tier 2"
    assert "best job a -50.0%" in told


@pytest.mark.parametrize("name", blocks.BLOCKS)
def test_every_block_can_be_made_from_the_kept_results(name: str) -> None:
    assert "Host: " in blocks.BLOCKS[name]() or name in WITHOUT_HOST


WITHOUT_HOST = {
    "adaptive-inference",
    "adaptive-training",
    "sim-vs-real",
    "gpu-truth",
}

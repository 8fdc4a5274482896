"""README quotes the result files: what stands between its markers is what they give."""

from __future__ import annotations

import pytest

from benchmarks.judge.trainings import rows
from benchmarks.publish import readme, results
from benchmarks.real.training import headlines, table_rows
from tests.benchmarks.real.test_training import RUNS


def test_readme_says_what_the_result_files_say() -> None:
    text = readme.README.read_text()
    assert readme.filled(text) == text, "run: python -m benchmarks run readme"


def test_a_block_is_replaced_and_what_is_beside_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "BLOCKS", {"a": lambda: "new"})
    told = readme.filled("before <!-- a:begin -->\nold\n<!-- a:end --> after")
    assert told == "before <!-- a:begin -->\nnew\n<!-- a:end --> after"


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
    told = readme.real_trainings()
    assert "tier 1 after 10 s in the mean" in told
    (own,) = [line for line in told.splitlines() if line.startswith("| `tradl`")]
    cells = [cell.strip() for cell in own.strip("|").split("|")]
    assert cells[:3] == ["`tradl`", "2", "0.85 (0.50, 1.20; 1)"]
    assert cells[5:7] == ["1.15", "1.15"], "makespan and CPU time"
    assert cells[7].split(", ")[1] == "-", "nobody reached tier 2"
    assert "best job a -50.0%" in told


@pytest.mark.parametrize("text", ["", "<!-- a:begin -->", "<!-- a:end --> <!-- a:begin -->"])
def test_a_missing_marker_is_said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(readme, "BLOCKS", {"a": lambda: "new"})
    with pytest.raises(ValueError, match="a:begin"):
        readme.filled(text)

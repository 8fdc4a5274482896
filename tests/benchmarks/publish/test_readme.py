"""The table in README is what the result files give."""

from __future__ import annotations

import pytest

from benchmarks.publish import hardware, readme, results


def test_readme_says_what_the_result_files_say() -> None:
    text = readme.README.read_text()
    assert readme.filled(text) == text, "run: python -m benchmarks run readme"


def test_the_table_has_four_rows() -> None:
    table, _, cost = readme.measured().partition("\n\n")
    assert len(table.splitlines()) == 2 + 4
    assert cost.count("\n") == 0


def test_what_is_between_the_markers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "measured", lambda: "new")
    monkeypatch.setattr(hardware, "for_readme", lambda: "of GPUs")
    gpu = f"{readme.GPU_BEGIN}\n{{}}\n{readme.GPU_END}"
    told = readme.filled(f"before {readme.BEGIN}\nold\n{readme.END} {gpu.format('old')} after")
    new = f"before {readme.BEGIN}\nnew\n{readme.END} {gpu.format('of GPUs')} after"
    assert told == new


@pytest.mark.parametrize("text", ["", readme.BEGIN, f"{readme.END} {readme.BEGIN}"])
def test_a_missing_marker_is_said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(readme, "measured", lambda: "new")
    with pytest.raises(ValueError, match="measured:begin"):
        readme.filled(text)


def test_services_that_are_worse_off_stand_beside_those_that_gained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {"demand": 1.4, "policy": policy, "jobs": 8, "satisfied_slo": met, "worse_slo": worse}
        for policy, met, worse in (
            ("none", 2, 0), ("none", 4, 0), ("adaptive?mode=slo", 6, 3),
            ("adaptive?mode=slo", 7, 2), ("adaptive?mode=band", 0, 9),
        )
    ]  # fmt: skip
    monkeypatch.setattr(results, "load", {"adaptive-real": {"rows": rows}}.get)
    (row,) = readme._services()
    assert (row["plain Docker"], row["dlsched"]) == ("3 of 8", "6.5 of 8")
    assert row["the price"] == "5 of 16 miss by more than under plain Docker"

"""The table in README is what the result files give."""

from __future__ import annotations

import pytest

from benchmarks.publish import hardware, readme


def test_readme_says_what_the_result_files_say() -> None:
    text = readme.README.read_text()
    assert readme.filled(text) == text, "run: python -m benchmarks run readme"


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

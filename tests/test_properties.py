"""The profile `ci` tries the same examples, whatever else is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.properties import VARIABLE

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import os, sys
from hypothesis import given, strategies
from tests import properties
properties.load_profile(os.environ)
if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
    import changed
@given(strategies.floats(), strategies.integers(), strategies.text())
def case(number, count, word):
    print(number, count, ascii(word))
case()
"""


@pytest.mark.process
def test_a_change_of_the_source_changes_no_example_under_ci(tmp_path: Path) -> None:
    numbers = ", ".join(f"{1000 + one / 7}, {1000 + one}, 'word {one}'" for one in range(200))
    (tmp_path / "changed.py").write_text(f"NEW = [{numbers}]\n", encoding="utf-8")

    def drawn(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, *words],
            cwd=ROOT,
            env={**os.environ, VARIABLE: "ci"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    before = drawn()
    assert before.count("\n") > 10
    assert drawn(str(tmp_path)) == before

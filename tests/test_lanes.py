"""Which lane a case is in, and what the unit lane does not allow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import may_have

ROOT = Path(__file__).resolve().parents[1]
CASES = """
import os, subprocess, sys
import pytest

def test_plain():
    pass

def test_starts_a_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.process
def test_may_start_a_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.slow
@pytest.mark.engine
def test_of_two_lanes():
    pass
"""

pytestmark = pytest.mark.process


def outcome(tmp_path: Path, *arguments: str) -> str:
    (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", *configuration, "-v"]
    done = subprocess.run(
        [*command, *arguments, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "DLSCHED_ENGINE_MISSING": "none here", "DLSCHED_REQUIRE_ENGINE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_unit_case_that_starts_a_process_fails(tmp_path: Path) -> None:
    told = outcome(tmp_path, "--lane=unit")
    assert "2 passed, 2 deselected, 1 error" in told
    assert "test_starts_a_process" in told.rpartition("short test summary")[2]
    assert "mark it `process`" in told


def test_the_strongest_marker_names_the_lane(tmp_path: Path) -> None:
    assert "test_of_two_lanes SKIPPED" in outcome(tmp_path, "--lane=slow")
    assert "4 deselected / 0 selected" in outcome(tmp_path, "--lane=engine")
    assert "LEFT OUT: 1 engine tests: none here" in outcome(tmp_path, "--lane=slow", "-n1")


def test_a_lane_that_is_none_is_named(tmp_path: Path) -> None:
    assert "--lane: fast: no such lane; unit, process" in outcome(tmp_path, "--lane=fast,unit")


@pytest.mark.parametrize(
    ("text", "lanes", "expected"),
    [
        ("", {"engine"}, False),
        ("", {"unit"}, True),
        ("", {"engine", "process"}, True),
        ("", set[str](), True),
        ("one = pytest.mark.engine", {"engine", "e2e"}, True),
        ("one = pytest.mark.engine", {"slow"}, False),
    ],
)
def test_files_without_a_lanes_marker_are_not_imported_for_it(
    tmp_path: Path, text: str, lanes: set[str], expected: bool
) -> None:
    (tmp_path / "test_one.py").write_text(text, encoding="utf-8")
    assert may_have(tmp_path / "test_one.py", lanes) is expected
